"""Waits are made short: Schemathesis likes the largest allowed value, and a long poll of a minute shows nothing more."""
import schemathesis

SHORT_MS = 20


def shorten(values):
    if isinstance(values, dict):
        for name in ("waitMs", "drainedWaitMs"):
            value = values.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 60_000:
                values[name] = SHORT_MS
            elif isinstance(value, str) and value.isascii() and value.isdigit() and 0 < int(value) <= 60_000:
                values[name] = str(SHORT_MS)
    return values


@schemathesis.hook
def map_query(ctx, query):
    return shorten(query)


@schemathesis.hook
def map_body(ctx, body):
    return shorten(body)


@schemathesis.hook
def before_call(ctx, case, kwargs):
    shorten(case.query)
    shorten(case.body)
