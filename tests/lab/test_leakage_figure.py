from murmurate.lab.leakage_figure import draw


def test_the_figure_of_leakage_is_drawn(tmp_path):
    draw(tmp_path / "leakage.png")
    assert (tmp_path / "leakage.png").stat().st_size > 50_000
