"""Each alert rule fires on the series of its fault and is silent on those of a healthy service, tried by Prometheus."""

from __future__ import annotations

import re
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
import yaml
from tests.support.alert_cases import ABSENT_CASES, ALERT_CASES, END_MINUTES, SCRAPED
from typer.testing import CliRunner

from murmurate.cli import app
from murmurate.service.clock_comparison import MAX_CLOCK_DIFFERENCE_S

SOURCE = Path(str(files("murmurate")))
RULES = SOURCE / "service" / "operator_api" / "alerts.yml"
DASHBOARD = RULES.with_name("dashboard.json")
_METRIC = re.compile(r"\bmurmurate_[a-z_0-9]+")
_SUFFIX = re.compile(r"_(total|bucket|sum|count)$")


def rules():
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def firing_test(series, alerts):
    """A test of promtool: these alerts fire on the series, at the end of them, and no others."""
    labels = [f'{{alertname="{alert}"}}' for alert in sorted(alerts)]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in {**SCRAPED, **series}.items()],
        "promql_expr_test": [
            {
                "expr": 'max by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{END_MINUTES}m",
                "exp_samples": [{"labels": each, "value": 1} for each in labels],
            }
        ],
    }


def rounds():
    """The first cases of all alerts, then the second ones, .."""
    for number in range(max(map(len, ALERT_CASES.values()))):
        yield {alert: cases[number] for alert, cases in ALERT_CASES.items() if number < len(cases)}


def run_promtool(folder, tests):
    (folder / "cases.yml").write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": tests}))
    command = ["promtool", "test", "rules", str(folder / "cases.yml")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.promtool
def test_each_alert_fires_on_its_fault_and_on_no_other_and_none_on_a_healthy_service(tmp_path):
    tests = []
    for cases in rounds():
        tests.append(firing_test({k: v for case in cases.values() for k, v in case.fault.items()}, cases))
        tests.append(firing_test({k: v for case in cases.values() for k, v in case.healthy.items()}, ()))
    done = run_promtool(tmp_path, tests)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.promtool
def test_an_alert_that_does_not_fire_is_found(tmp_path):
    case = ALERT_CASES["MurmurateWorkerSilent"][0]
    assert run_promtool(tmp_path, [firing_test(case.healthy, ["MurmurateWorkerSilent"])]).returncode == 1


@pytest.mark.slow
@pytest.mark.promtool
def test_a_process_that_is_not_scraped_is_named_unless_its_target_is_down(tmp_path):
    tests = []
    for process, series in ABSENT_CASES.items():
        found = firing_test(series, ["MurmurateNotScraped"])
        labels = f'{{alertname="MurmurateNotScraped",alertstate="firing",process="{process}",severity="page"}}'
        found["promql_expr_test"][0] |= {"expr": "max without () (ALERTS)"}
        found["promql_expr_test"][0]["exp_samples"][0]["labels"] = labels
        tests += [found, firing_test({**series, **ALERT_CASES["MurmurateDown"][0].fault}, ["MurmurateDown"])]
        tests.append(firing_test({**series, **ALERT_CASES["MurmurateDown"][0].healthy}, ["MurmurateNotScraped"]))
    done = run_promtool(tmp_path, tests)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.promtool
def test_prometheus_takes_the_rules():
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_and_says_what_happens_and_what_to_do():
    assert rules().keys() == {*ALERT_CASES, "MurmurateNotScraped"}
    for alert, rule in rules().items():
        assert rule["labels"]["severity"] in {"page", "ticket"}, alert
        assert rule["annotations"].keys() == {"summary", "action"}, alert


def test_every_metric_of_a_rule_and_of_the_dashboard_is_exposed_by_the_service():
    modules = [
        path.read_text(encoding="utf-8") for part in ("service", "commands") for path in (SOURCE / part).rglob("*.py")
    ]
    exposed = {
        name for text in modules if re.search("prometheus_client|# TYPE", text) for name in _METRIC.findall(text)
    }
    exposed |= {_SUFFIX.sub("", name) for name in exposed}
    texts = [rule["expr"] for rule in rules().values()] + [DASHBOARD.read_text(encoding="utf-8")]
    used = {_SUFFIX.sub("", name) for text in texts for name in _METRIC.findall(text)} - {"murmurate_build_info"}
    assert used - exposed == set()


@pytest.mark.slow
def test_every_case_is_about_the_metrics_of_its_rule():
    for alert, cases in ALERT_CASES.items():
        series = {name.partition("{")[0] for case in cases for name in (*case.fault, *case.healthy)}
        assert series <= set(re.findall(r"\b[a-z_0-9]+\b", rules()[alert]["expr"])), alert


@pytest.mark.parametrize(("option", "file"), [("--alerts", RULES), ("--dashboard", DASHBOARD)])
def test_the_command_line_prints_the_rules_and_the_dashboard(option, file):
    done = CliRunner().invoke(app, ["serve", option])
    assert (done.exit_code, done.output) == (0, file.read_text(encoding="utf-8"))


def test_the_alerts_about_clocks_have_the_tolerance_of_the_service():
    of_clocks = [rule["expr"] for rule in rules().values() if "murmurate_clock_difference_seconds" in rule["expr"]]
    assert len(of_clocks) == 4
    assert {expression.rpartition(" > ")[2] for expression in of_clocks} == {f"{MAX_CLOCK_DIFFERENCE_S:.0f}"}
