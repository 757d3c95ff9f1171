"""A headless browser for tests of the page: Debian's Chromium, with no way to any other machine."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

PHONE, DESK = (390, 844), (1280, 900)
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")


@contextmanager
def browser(downloads: Path | None = None) -> Iterator[webdriver.Chrome]:
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
    ):
        options.add_argument(each)
    if downloads is not None:
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    window = webdriver.Chrome(options=options, service=Service(driver))
    try:
        window.set_script_timeout(60)
        yield window
    finally:
        window.quit()


def dress(window: Any, size: tuple[int, int] = DESK, *, dark: bool = False) -> None:
    """Give the page the size of a screen and a colour scheme."""
    # The window itself has a least width, which is wider than a phone.
    window.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def go(window: Any, address: str, route: str, wait: float = 60.0) -> None:
    """Open a view of the page, and wait until it is complete."""
    window.get("about:blank")
    window.get(f"{address}#/{route}")
    name = route.partition("?")[0]
    until(window, f"return document.querySelector('main')?.dataset.view === {name!r}", wait)
    if name == "graph":
        until(window, "return document.querySelector('.picture')?.dataset.drawn === 'yes'", wait)
    if name == "node":
        # The explanation comes after the rest.
        until(window, "return !document.querySelector('main [role=status]')", wait)


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
    """Return errors of the console since the last call, such as breaches of the policy."""
    return [each["message"] for each in window.get_log("browser") if each["level"] == "SEVERE"]


def asked(window: Any) -> set[str]:
    """Return the addresses that the page has asked since the last call."""
    events = (json.loads(each["message"])["message"] for each in window.get_log("performance"))
    return {
        each["params"]["request"]["url"]
        for each in events
        if each["method"] == "Network.requestWillBeSent"
    }


def barriers(window: Any) -> list[str]:
    """Return what axe-core finds serious or critical, with the elements."""
    window.execute_script(AXE)
    found = window.execute_async_script(
        "const done = arguments[0];"
        "axe.run({resultTypes: ['violations']}).then((found) => done(found.violations));"
    )
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


def tab_to(window: Any, selector: str, most: int = 80) -> Any:
    """Press Tab until an element has the focus that a selector names, and return it."""
    for _ in range(most):
        press(window, Keys.TAB)
        here = window.switch_to.active_element
        if window.execute_script("return arguments[0].matches(arguments[1])", here, selector):
            return here
    raise AssertionError(f"Tab does not reach {selector}")


def press(window: Any, *keys: str) -> None:
    """Press keys, one after the other, wherever the focus is."""
    ActionChains(window, duration=0).send_keys(*keys).perform()


def check(window: Any, address: str) -> None:
    """Check what holds in every view."""
    assert window.execute_script("return window.hacked") is None
    assert not window.execute_script("return document.querySelector('main img, main script')")
    assert barriers(window) == []
    wide = "const { scrollWidth, clientWidth } = document.documentElement;"
    assert window.execute_script(f"{wide} return scrollWidth - clientWidth") <= 0, "too wide"
    assert complaints(window) == []
    for each in asked(window):
        assert each.startswith((address, "about:", "blob:", "data:")), each


def wait_for(path: Path) -> None:
    end = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.05)
