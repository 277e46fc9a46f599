"""Who thinks: a model or the playbook, behind one interface."""
