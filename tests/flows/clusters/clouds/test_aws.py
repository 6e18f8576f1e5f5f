"""Credentials that can't be had: a `credential_process` that fails, as when its login has ended, is one account's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flows.clusters.clouds.account import CloudError, Instance
from flows.clusters.clouds.aws import AwsAccount, machines_of
from tests.fake_cloud import OFFER

MACHINE = Instance("aws", "us-east-1", "us-east-1a", "i-1", "specsweep-x-1234", "running", True, None, {})
CANT = "aws: its credentials can't be had .*credential"


@pytest.fixture(autouse=True)
def logged_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text("[default]\nregion = us-east-1\ncredential_process = /bin/false\n", encoding="utf-8")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_an_account_without_its_login_says_so() -> None:
    with pytest.raises(CloudError, match=CANT):
        AwsAccount().look()
    with pytest.raises(CloudError, match=CANT):
        AwsAccount().terminate([MACHINE])


def test_a_profile_that_does_not_exist_is_no_other_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "night")
    with pytest.raises(CloudError, match=r"config profile \(night\) could not be found"):
        AwsAccount().look()


def test_the_machines_of_a_cluster_are_then_left_to_skypilot() -> None:
    assert machines_of("specsweep-x", OFFER) is None
