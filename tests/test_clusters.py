"""The files that docs/clusters.md gives are of the kind that they should be."""

import subprocess

import yaml

from tests.documents import ROOT, read_page

PAGE = read_page(ROOT / "docs" / "clusters.md")


def test_the_manifest_is_a_cluster_of_ray():
    cluster = yaml.safe_load(PAGE.files["raycluster.yaml"])
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    containers = [group["template"]["spec"]["containers"][0] for group in groups]
    assert len({container["image"] for container in containers}) == 1
    assert containers[1]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert groups[1]["minReplicas"] >= 1  # its GPU says which kind a run is for


def test_the_script_is_one_of_bash():
    script = PAGE.files["beamsearch.sbatch"]
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert script.startswith("#!/bin/bash\n#SBATCH")
