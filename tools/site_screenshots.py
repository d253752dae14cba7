# ruff: noqa: INP001  a script of its own
"""Pictures for the first page: python -m tools.site_screenshots site/0.1.0 [--out FOLDER].

`zone-top.png` is the first screen of `zone-desktop.png`, which `tools/screenshots.py` makes. `site-desktop.png` and
`site-phone.png` show the first page of a site that `tools.docs_site` has built. No name of another host is resolved.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from PIL import Image, ImageChops

IMAGES = Path(__file__).parents[1] / "docs" / "images"
TOP_HEIGHT, MARGIN = 850, 40
DEVICES = {"desktop": (1280, 1000), "phone": (390, 844)}


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files and writes no line for each of them."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Write nothing."""


def save_small(image: Image.Image, png: Path) -> None:
    """Write a picture with 256 colours."""
    image.convert("RGB").quantize(256, kmeans=3, dither=Image.Dither.NONE).save(png, optimize=True)


def crop_first_screen(page: Path, png: Path) -> None:
    """The upper part of the picture of a page, without its empty margins."""
    image = Image.open(page).convert("RGB")
    image = image.crop((0, 0, image.width, min(TOP_HEIGHT, image.height)))
    box = ImageChops.difference(image, Image.new("RGB", image.size, image.getpixel((2, 2)))).getbbox()
    left, _, right, _ = box or (0, 0, image.width, image.height)
    save_small(image.crop((max(0, left - MARGIN), 0, min(image.width, right + MARGIN), image.height)), png)


def shoot_first_page(address: str, png: Path, *, width: int, height: int) -> None:
    """A picture of the first screen of a page, in a frame as wide as the device."""
    with tempfile.TemporaryDirectory() as made:
        frame = Path(made) / "frame.html"
        style = f'style="border:0" width="{width}" height="{height}"'
        frame.write_text(f'<body style="margin:0"><iframe src="{address}" {style}></iframe>', encoding="utf-8")
        command = ["/usr/bin/chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"]
        command += [f"--user-data-dir={made}/profile", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        command += ["--virtual-time-budget=5000", f"--window-size={max(width, 500)},{height}", f"--screenshot={png}"]
        subprocess.run([*command, frame.as_uri()], check=True, capture_output=True, timeout=300)  # noqa: S603
    save_small(Image.open(png).crop((0, 0, width, height)), png)


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description="Pictures for the first page.")
    parser.add_argument("site", type=Path, help="Folder of a built version.")
    parser.add_argument("--out", type=Path, default=IMAGES)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    crop_first_screen(IMAGES / "zone-desktop.png", asked.out / "zone-top.png")
    handler = partial(QuietHandler, directory=str(asked.site.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/{asked.site.name}/"
        for device, (width, height) in DEVICES.items():
            shoot_first_page(address, asked.out / f"site-{device}.png", width=width, height=height)
        server.shutdown()


if __name__ == "__main__":
    main()
