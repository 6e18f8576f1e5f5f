"""What an account may not rent is not waited for: the run ends, and says for each offer why."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.cloud import Lab
from lab.weather.settings import set_weather
from tests.cloud.night import Night
from tests.rented_run import end

pytestmark = [pytest.mark.cloud, pytest.mark.slow(35)]


def test_a_run_whose_quota_is_0_ends_and_says_why(lab: Lab, tmp_path: Path) -> None:
    """EC2 says so to SkyPilot alone, whose own error only names the zone."""
    set_weather(lab.weather, "us-west-2", "quota")
    night = Night(lab, tmp_path, 1, places=({"infra": "aws/us-west-2"},))
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(sweep.read_text().replace("spot: true", "spot: false"))
    process = night.start()
    try:
        night.wait(None, lambda: process.poll() is not None, "it ends: what it waits for it may never rent")
    finally:
        end(process)
    assert process.returncode != 0
    assert night.ends(0) == ["refused"]
    said = " ".join(night.said().split())
    assert "aws/us-west-2a" in said and "quota of the region is used up; remedy: ask AWS for more" in said
    assert not [each for each in lab.instances() if each.cluster.startswith(night.cluster(0))]
