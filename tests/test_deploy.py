"""The files of `deploy/` agree with the code: commands have options that exist, paths are served, metrics are made."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.main import get_command

from abaca.cli.serve import add_to
from abaca.serve.app import make_app
from abaca.serve.metrics import Metrics

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\b(?:abaca|process)_[a-z_]+")


def text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def check_serve(words: list[str]) -> None:
    """The command is one that `abaca serve` parses; its model need not be there."""
    assert Path(words[0]).name == "abaca"
    assert words[1] == "serve"
    assert "--allowed-host" in words  # else other machines get status 421
    app = typer.Typer()
    add_to(app)
    get_command(app).make_context("serve", words[2:])


def known_metrics() -> set[str]:
    metrics = Metrics()
    metrics.watch_queue(lambda: 0, lambda: 0.0)
    metrics.watch_log(lambda: 0)
    found = text_string_to_metric_families(metrics.text().decode())
    names = {name for family in found for name in (family.name, f"{family.name}_total", f"{family.name}_bucket")}
    return names | {"process_resident_memory_bytes"}


def check_expressions(expressions: list[str]) -> None:
    used = {name for expression in expressions for name in METRIC.findall(expression)}
    assert len(used) > 5
    assert used <= known_metrics()
    for expression in expressions:
        assert expression.count("(") == expression.count(")")


def test_the_unit_starts_a_command_that_exists(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text("abaca.service"))
    service = unit["Service"]
    check_serve(shlex.split(service["ExecStart"]))
    assert int(service["TimeoutStopSec"]) > 30  # the server ends within 30 seconds
    if shutil.which("systemd-analyze"):
        own = text("abaca.service").replace("/opt/abaca/bin/abaca", "/bin/true").replace("User=abaca\n", "")
        (tmp_path / "abaca.service").write_text(own)
        command = ["systemd-analyze", "verify", "--recursive-errors=no", tmp_path / "abaca.service"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not [line for line in done.stderr.splitlines() if "abaca.service" in line], done.stderr


def test_the_image_installs_what_exists_and_runs_without_rights() -> None:
    lines = [line for line in text("Dockerfile").replace("\\\n", " ").splitlines() if line and line[0] != "#"]
    steps = [line.split(None, 1) for line in lines]
    assert re.fullmatch(r"python:3\.1[1-3]-slim-\w+", steps[0][1])
    copied = {source for kind, rest in steps if kind == "COPY" for source in rest.split()[:-1]}
    assert all((ROOT / source).exists() for source in copied)
    assert {"src", "setup.py", "pyproject.toml", "constraints.txt"} <= copied
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (install,) = (rest for kind, rest in steps if kind == "RUN")
    extras = re.search(r"\.\[([\w,]+)\]", install)
    assert extras is not None
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])
    assert project["readme"] in copied
    assert set(project["license-files"]) <= copied
    users = [rest for kind, rest in steps if kind == "USER"]
    assert users == ["65534:65534"]
    check_serve(json.loads(next(rest for kind, rest in steps if kind == "CMD")))


def test_the_manifest_probes_addresses_that_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment, service = yaml.safe_load_all(text("kubernetes.yaml"))
    template = deployment["spec"]["template"]
    assert (
        deployment["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"] == service["spec"]["selector"]
    )
    (container,) = template["spec"]["containers"]
    check_serve(container["command"])
    (port,) = container["ports"]
    assert (port["name"], port["containerPort"]) == (service["spec"]["ports"][0]["targetPort"], 8000)
    paths = served_paths()
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[name]["httpGet"]["path"] in paths
        assert container[name]["httpGet"]["port"] == port["name"]
    assert template["metadata"]["annotations"]["prometheus.io/path"] in paths
    assert set(container["resources"]) == {"requests", "limits"}
    mounts, volumes = (
        {one["name"] for one in given} for given in (container["volumeMounts"], template["spec"]["volumes"])
    )
    assert mounts == volumes
    assert template["spec"]["terminationGracePeriodSeconds"] > 30
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert container["image"] == f"abaca:{project['version']}"


def served_paths() -> set[str]:
    """The addresses of the server, from its routes."""
    source = Path(make_app.__code__.co_filename).with_name("routes.py").read_text(encoding="utf-8")
    return set(re.findall(r"\"(/[a-z/]*)\"", source))


def test_alerts_are_about_metrics_that_exist() -> None:
    (group,) = yaml.safe_load(text("prometheus-rules.yml"))["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names) > 5
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"].endswith(".")
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))
    check_expressions([rule["expr"] for rule in group["rules"]])


def test_a_first_refused_reload_is_an_increase() -> None:
    text = Metrics().text().decode()
    assert 'abaca_reloads_total{result="refused"} 0.0' in text
    assert 'abaca_reloads_total{result="done"} 0.0' in text


def test_the_dashboard_shows_metrics_that_exist() -> None:
    board: dict[str, Any] = json.loads(text("grafana-dashboard.json"))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    check_expressions([target["expr"] for panel in panels for target in panel["targets"]])
