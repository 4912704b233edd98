"""The files of `deploy/` agree with the code: commands have options that exist, paths are served, metrics are made."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import promql_parser
import pytest
import typer
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.main import get_command

from abaca.cli.serve import add_to
from abaca.serve.app import make_app
from abaca.serve.metrics import Metrics
from models import untrained

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def fields(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """A schema of an object that has these fields and no others."""
    properties = required | optional
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


TEXT, WHOLE, LIST = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "array"}
SENTENCE = {"type": "string", "pattern": r"\.$"}
RULE = fields(
    {
        "alert": {"type": "string", "pattern": "^Abaca[A-Z][A-Za-z]+$"},
        "expr": TEXT,
        "labels": fields({"severity": {"enum": ["page", "ticket"]}}),
        "annotations": fields({"summary": SENTENCE}),
    },
    **{"for": {"type": "string", "pattern": r"^\d+[mh]$"}},
)
RULES = fields({"groups": LIST | {"items": fields({"name": TEXT, "rules": LIST | {"items": RULE}})}})
"""The file of rules that Prometheus reads, as far as it is used."""
PANEL = fields(
    {
        "id": WHOLE,
        "type": {"enum": ["timeseries", "stat", "table"]},
        "title": TEXT,
        "gridPos": fields(dict.fromkeys("xywh", WHOLE)),
        "datasource": fields({"type": {"const": "prometheus"}, "uid": {"const": "${datasource}"}}),
        "fieldConfig": fields({"defaults": {"type": "object"}, "overrides": LIST}),
        "targets": LIST | {"items": fields({"refId": TEXT, "expr": TEXT}, legendFormat=TEXT, instant={}, format=TEXT)},
    },
    options={"type": "object"},
)
DASHBOARD = fields(
    {
        "title": TEXT,
        "uid": TEXT,
        "schemaVersion": WHOLE,
        "version": WHOLE,
        "refresh": TEXT,
        "time": fields({"from": TEXT, "to": TEXT}),
        "timezone": TEXT,
        "tags": LIST,
        "templating": fields({"list": LIST}),
        "panels": LIST | {"items": PANEL},
    }
)
"""The dashboard that Grafana imports, as far as it is used."""

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
    """Each is PromQL, and its metrics exist."""
    used = {name for expression in expressions for name in METRIC.findall(expression)}
    assert len(used) > 5
    assert used <= known_metrics()
    for expression in expressions:
        promql_parser.parse(expression)


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


def steps() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile and their arguments."""
    lines = [line for line in text("Dockerfile").replace("\\\n", " ").splitlines() if line and line[0] != "#"]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def test_the_image_has_what_it_needs_and_runs_without_rights() -> None:
    subprocess.run([Path(sys.executable).with_name("hadolint"), DEPLOY / "Dockerfile"], check=True)
    assert all(re.match(r"python:3\.1[1-3]-(slim-)?bookworm\b", rest) for kind, rest in steps() if kind == "FROM")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"src", "setup.py", "pyproject.toml", project["readme"], *project["license-files"]} <= copied()
    assert [rest for kind, rest in steps() if kind == "USER"] == ["65534:65534"]
    check_serve(command_of("CMD"))


def copied() -> set[str]:
    """What the image gets from the repository."""
    given = (rest.split() for kind, rest in steps() if kind == "COPY")
    return {source for words in given if not words[0].startswith("--from") for source in words[:-1]}


def command_of(kind: str) -> list[str]:
    """The words of the command of an instruction."""
    rest = next(rest for name, rest in steps() if name == kind)
    words: list[str] = json.loads(rest[rest.index("[") :])
    return words


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the image is of Linux")
def test_the_commands_of_the_image_run_in_a_fresh_environment(tmp_path: Path) -> None:
    """Without a daemon: copies, installs and starts in a new environment, which finds the dependencies of this one."""
    place = tmp_path / "abaca"
    for source in copied():
        (shutil.copytree if (ROOT / source).is_dir() else shutil.copyfile)(ROOT / source, made(place / source))
    for left in (place / "src").rglob("_native*.so"):
        left.unlink()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "fresh"], check=True)
    pip = [tmp_path / "fresh" / "bin" / "python", "-m", "pip"]
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", "setuptools"], check=False)  # it may be too old
    (site,) = (tmp_path / "fresh").glob("lib/python*/site-packages")
    (site / "here.pth").write_text(sysconfig.get_path("purelib"))
    inside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {
        "PATH": f"{tmp_path / 'fresh' / 'bin'}:{os.environ['PATH']}", "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # it means that nothing is isolated
    }  # fmt: skip
    for command in (rest for kind, rest in steps() if kind == "RUN"):
        here = command.replace("/wheels", f"{tmp_path}/wheels")
        done = subprocess.run(["sh", "-c", here], cwd=place, env=inside, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert list(site.glob("abaca/nn/ops/_native*.so"))  # the image has the fast code
    untrained(tmp_path / "model")
    words = [{"/model": str(tmp_path / "model"), "0.0.0.0": "127.0.0.1"}.get(word, word) for word in command_of("CMD")]
    server = subprocess.Popen([*words, "--port", "0"], cwd=tmp_path, env=inside, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip().split(" at ")[1]
        probe = [word.replace("http://127.0.0.1:8000", address) for word in command_of("HEALTHCHECK")]
        probe = [word.replace("timeout=2", "timeout=120") for word in probe]
        subprocess.run(probe, env=inside, check=True)
    finally:
        server.terminate()
        server.communicate(timeout=120)
    assert server.returncode == 0


def made(path: Path) -> Path:
    """A path whose folder exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_the_manifest_probes_addresses_that_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment, service = yaml.safe_load_all(text("kubernetes.yaml"))
    for document in (deployment, service):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
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
    document = yaml.safe_load(text("prometheus-rules.yml"))
    jsonschema.validate(document, RULES)
    (group,) = document["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names) > 5
    check_expressions([rule["expr"] for rule in group["rules"]])


def test_a_first_refused_reload_is_an_increase() -> None:
    text = Metrics().text().decode()
    assert 'abaca_reloads_total{result="refused"} 0.0' in text
    assert 'abaca_reloads_total{result="done"} 0.0' in text


def test_the_dashboard_shows_metrics_that_exist() -> None:
    board: dict[str, Any] = json.loads(text("grafana-dashboard.json"))
    jsonschema.validate(board, DASHBOARD)
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    check_expressions([target["expr"] for panel in panels for target in panel["targets"]])
