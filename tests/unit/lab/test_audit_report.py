"""What a reader of the audit sees: findings, and nothing that chance made."""

import json
import re

import numpy as np
import pytest
from tests.support.audited_zone import plan

from murmurate.commands.audit import audit_plan
from murmurate.lab.audit.attack import AttackResult, Estimate
from murmurate.lab.audit.report import attack_cells, draw_attack_figure, summary_sentences
from murmurate.lab.audit.run_attacks import run_audit
from murmurate.privacy.noise import SeededNoise


def texts(drawn):
    return [text.get_text() for axes in drawn.axes for text in axes.texts]


def shown(attack):
    return " ".join(attack_cells(attack))


@pytest.mark.parametrize(("low", "found"), [(0.30, False), (0.5, False), (0.51, True)])
def test_an_auc_that_chance_explains_is_shown_as_no_better_than_guessing(low, found):
    made = plan()
    auc = Estimate(low + 0.04, low, low + 0.08)
    noised, bare = (
        AttackResult(name="strong", knows="", target="hut", auc=auc, auc_bound=0.65 if noise else None, noise=noise)
        for noise in (True, False)
    )
    everything = [
        *(shown(each) for each in (noised, bare)),
        *summary_sentences(made, (noised, bare), 1000)[:1],
        *texts(draw_attack_figure(made, [noised, bare], 20)),
    ]
    assert ("no better than guessing" in " ".join(everything)) != found
    number = f"{auc.mean:.3f}|{100 * auc.mean:.1f} %"
    assert any(re.search(number, text) for text in everything) == found


def test_no_bar_lies_below_guessing():
    worse = AttackResult(name="public", knows="", target="hut", auc=Estimate(0.45, 0.42, 0.48), auc_bound=0.65)
    axes = draw_attack_figure(plan(), [worse], 20).axes[0]
    assert not axes.patches
    assert axes.get_xlim()[0] == 0.5


def test_an_epsilon_that_proves_nothing_is_no_number():
    nothing = AttackResult(name="values", knows="", target="hut", quantity="epsilon", measured=0.0, bound=0.5)
    assert shown(nothing).split() == ["values", "none", "0.500", "within"]


def test_the_report_is_written_for_people_programs_and_eyes(tmp_path, capsys):
    path = tmp_path / "plan.json"
    path.write_text(plan(habits='["resident", "retired"]').to_json(), encoding="utf-8")
    assert audit_plan(path, tmp_path / "out", 30, 20_000) == 0
    out = capsys.readouterr().out
    table = out[out.index("attack ") : out.index("\n- ")]
    assert max(map(len, table.splitlines())) <= 80
    text = " ".join(out.split())
    for words in (
        "quay [7]",
        "without noise",
        "Targets: hut (2 models), neighbour.",
        "Noise that is skipped once in 1,000 draws is found from about",
        "a chance below 1e-05",
    ):
        assert words in text
    assert "at best" not in text
    found = json.loads((tmp_path / "out" / "audit.json").read_text(encoding="utf-8"))
    assert found["ok"]
    assert found["attacks"][0]["name"] == "strong"
    assert found["attacks"][1]["measured"] == "infinite"
    assert not found["attacks"][1]["noise"]
    for name in ("index.html", "attacks.png", "attacks.svg"):
        assert (tmp_path / "out" / name).stat().st_size > 500


def test_a_broken_plan_is_named_with_its_evidence():
    class Constant(SeededNoise):
        def draw(self, law, scale_wh, *more):
            return 7 + 0 * super().draw(law, scale_wh, *more)

    found = run_audit(plan(), 20, 1, lambda _: None, samples=2000, noise_source=Constant)
    text = " ".join(summary_sentences(plan(), found, 2000))
    assert "Do not publish under this plan." in text
    assert re.search(r"values \(\w+, \d+ Wh against \d+ Wh: eps \d\.\d+, at most 0\.\d+\)", text)
    assert np.isfinite(max(attack.measured for attack in found if attack.name == "values"))
