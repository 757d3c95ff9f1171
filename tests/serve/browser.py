"""A headless browser for tests of the page: Debian's Chromium, with no way to any other machine."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PHONE, DESK = (360, 740), (1280, 900)


@contextmanager
def browser(
    size: tuple[int, int] = DESK, *, dark: bool = False, downloads: Path | None = None
) -> Iterator[webdriver.Chrome]:
    """Yield a browser in which every name but that of this machine leads nowhere."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.fail("the page is tested in Chromium: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for each in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--use-angle=swiftshader",
        "--enable-unsafe-swiftshader",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--window-size={size[0]},{size[1]}",
    ):
        options.add_argument(each)
    if downloads is not None:
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    window = webdriver.Chrome(options=options, service=Service(driver))
    try:
        window.set_script_timeout(60)
        # The window itself has a least width, which is wider than a phone.
        window.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield window
    finally:
        window.quit()


def go(window: Any, address: str, route: str, wait: float = 60.0) -> None:
    """Open a view of the page, and wait until it is complete."""
    window.get("about:blank")
    window.get(f"{address}#/{route}")
    name = route.partition("?")[0]
    until(window, f"return document.querySelector('main')?.dataset.view === {name!r}", wait)
    if name == "graph":
        until(window, "return document.querySelector('.picture')?.dataset.drawn === 'yes'", wait)


def until(window: Any, script: str, wait: float = 60.0) -> Any:
    """Return what a script returns, as soon as that is true."""
    end = time.monotonic() + wait
    while True:
        found = window.execute_script(script)
        if found:
            return found
        assert time.monotonic() < end, f"not so: {script}\n{window.page_source[:3000]}"
        time.sleep(0.05)


def complaints(window: Any) -> list[str]:
    """Return errors and warnings of the console, such as breaches of the security policy."""
    return [each["message"] for each in window.get_log("browser") if each["level"] in ("SEVERE",)]
