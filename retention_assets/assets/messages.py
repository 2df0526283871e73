"""Sends messages to a webhook: the address is in the environment, because it is a secret."""

import json
import os
from collections.abc import Mapping
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from retention_assets.errors import ConfigurationError, StoreError

WEBHOOK = "RETENTION_WEBHOOK"  # the environment variable with the address
_TIMEOUT = urllib3.Timeout(connect=3.0, read=10.0)  # seconds
_RETRIES = urllib3.Retry(
    total=3, redirect=False, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504), allowed_methods={"POST"},
    raise_on_status=False, respect_retry_after_header=False,
)  # fmt: skip

Message = Mapping[str, str | int]


def send(message: Message) -> None:
    """Post the message as JSON. Its key `text` is what chat programs show.

    Errors: ConfigurationError if no address is set; StoreError if the message was not accepted. Neither has the
    address in its text.
    """
    address = os.environ.get(WEBHOOK, "")
    if not address.startswith(("https://", "http://")):
        raise ConfigurationError(
            f"{WEBHOOK} is {'not the URL of a webhook' if address else 'not set'}. No message was sent. Set it in the "
            "environment of Dagster's code location, or switch this sensor off."
        )
    try:
        answer = _client(address).request(
            "POST", address, body=json.dumps(message).encode(), headers={"Content-Type": "application/json"},
            retries=_RETRIES, timeout=_TIMEOUT,
        )  # fmt: skip
        problem = "" if answer.status < 300 else f"it answered with status {answer.status}"
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        problem = f"it cannot be reached ({type(getattr(error, 'reason', None) or error).__name__})"
    if problem:  # raised outside of `except`, so that no traceback shows the address
        told = f"The webhook in {WEBHOOK} did not accept a message: {problem}."
        raise StoreError(f"{told} Message: {message['text']}")


def _client(address: str) -> urllib3.PoolManager:
    scheme, host = urlsplit(address)[:2]
    proxy = "" if proxy_bypass(host) else getproxies().get(scheme, "")
    return urllib3.ProxyManager(proxy) if proxy else urllib3.PoolManager()
