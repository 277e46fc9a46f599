"""Where the endpoint and its key come from."""

import os

import pytest

from beamsearch.errors import EndpointError
from beamsearch.llm.endpoint import Endpoint, endpoint_configured, find_endpoint, read_env

DOTENV = """
# the lab's gateway
export OPENAI_BASE_URL='https://gateway.example/v1'   # behind the proxy
OPENAI_API_KEY = sk-from-file#1   # not yours
SOMETHING_ELSE=1
not an assignment
"""


def test_a_dotenv_is_read_below_the_environment_and_exported_nowhere(tmp_path):
    (tmp_path / ".env").write_text(DOTENV)
    before = dict(os.environ)
    env = read_env(tmp_path, environ={})
    assert env == {
        "OPENAI_BASE_URL": "https://gateway.example/v1",
        "OPENAI_API_KEY": "sk-from-file#1",
    }
    assert read_env(tmp_path, {"OPENAI_API_KEY": "sk-mine"})["OPENAI_API_KEY"] == "sk-mine"
    assert read_env(tmp_path, {"OPENAI_API_KEY": " "})["OPENAI_API_KEY"] == "sk-from-file#1"
    assert dict(os.environ) == before


def test_a_folder_called_dotenv_is_not_a_file_of_keys(tmp_path):
    (tmp_path / ".env").mkdir()
    assert read_env(tmp_path, environ={}) == {}


def test_an_unreadable_dotenv_is_one_clear_line(tmp_path):
    (tmp_path / ".env").write_bytes(b"OPENAI_API_KEY=\xff\xfe")
    with pytest.raises(EndpointError, match="not UTF-8"):
        read_env(tmp_path, environ={})


@pytest.mark.parametrize(
    ("env", "configured"),
    [
        ({}, False),
        ({"OPENAI_API_KEY": "  "}, False),
        ({"OPENAI_API_KEY": "sk-1"}, True),
        ({"OPENAI_BASE_URL": "http://localhost:8000/v1"}, True),
    ],
)
def test_a_key_or_an_address_configures_an_endpoint(env, configured):
    assert endpoint_configured(env) is configured
    if configured:
        assert find_endpoint(env).base_url.endswith("/v1")
    else:
        with pytest.raises(EndpointError, match="set OPENAI_API_KEY"):
            find_endpoint(env)


@pytest.mark.parametrize("address", ["localhost:8000", "ftp://host/v1", "http://", "http://h:x/v1"])
def test_an_address_that_cannot_be_one_is_refused(address):
    with pytest.raises(EndpointError, match="OPENAI_BASE_URL"):
        find_endpoint({"OPENAI_BASE_URL": address})


def test_a_pasted_key_with_a_line_break_is_refused_without_showing_it():
    with pytest.raises(EndpointError) as caught:
        find_endpoint({"OPENAI_API_KEY": "sk-one\nsk-two"})
    assert "sk-" not in str(caught.value)


def test_secrets_in_an_address_are_not_told():
    endpoint = Endpoint("https://user:pass@host:8443/v1/?api-key=abc", "k")
    assert endpoint.where == "https://host:8443/v1"
