"""What schemathesis does not know of an answer: loaded by SCHEMATHESIS_HOOKS."""

import re
from urllib.parse import urlencode

import schemathesis

INSIDE = re.compile(
    r"node:[a-z_]+|node_modules|\bat (?:\S+ \()?\S+\.\w+:\d+:\d+|/(?:home|root|tmp|var|usr)/|\w\.[tj]s\b|127\.0\.0\.1"
    r"|E(?:CONN|NOENT|PIPE|RR_)[A-Z_]*|SQLSTATE|relation \"|column \"|postgres|drizzle|undici|zod"
    r"|(?:Type|Range|Syntax|Reference)Error|is not a function|undefined|\[object |Unexpected token|Invalid input"
)


@schemathesis.hook
def filter_case(context, case):
    """Node's parser refuses over 16 KiB of headers, the path among them, with 431 and before there is a route."""
    return len(urlencode(case.query or {}, doseq=True)) < 8192


@schemathesis.check
def tells_nothing_inside(ctx, response, case):
    """An error says what is wrong with the request, and nothing of what the gateway is made of."""
    if response.status_code < 400:
        return
    sent = f"{case.path_parameters} {case.query} {case.body}"
    for found in INSIDE.finditer(response.text):
        if found.group() not in sent:
            raise AssertionError(f"the answer tells {found.group()!r}: {response.text[:500]}")


@schemathesis.check
def has_an_id(ctx, response, case):
    """Every answer has the id by which its line in the log is found."""
    if not re.fullmatch(r"[0-9a-f-]{36}", response.headers.get("x-request-id", [""])[0]):
        raise AssertionError("the answer has no x-request-id")


@schemathesis.check
def counts_the_hour(ctx, response, case):
    """Users and projects say on every answer where the hour stands, in whole numbers."""
    if not re.match(r"^(?:/api)?/v1/(?:users|projects)\b", case.operation.path):
        return
    for name in ("limit", "remaining", "reset"):
        if not re.fullmatch(r"\d+", response.headers.get(f"x-ratelimit-{name}", [""])[0]):
            raise AssertionError(f"X-RateLimit-{name.capitalize()} is no whole number")
