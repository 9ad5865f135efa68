"""Validation rules that no schema can express.

schemathesis reports a failure when the server rejects data that fits the schema. The hooks ignore a
rejection if all of its reasons match the rules below. Any other rejection fails the run: either the
schema should express the rule, or the rule belongs into this list.
"""

import json
import re

import schemathesis

# Rules for documents and leases beyond their schemas, matched against error details.
BEYOND_SCHEMAS = [
    # Between query parameters.
    r"exactly one of the query parameters `client_id` and `node_id` is needed",
    r"query parameters `\w+` and `\w+` cannot be combined",
    # Between elements: schemas compare whole elements, not their names, and do not add.
    r"must appear only once",
    r"duplicate (resource|priority)",
    r"must be the priority of at most 3 entries",
    r"must be unique; (resources|rules)\[\d+\] has the same (glob|name)",
    r"must be left out: \w+ is already set",
    r"must be the last template, since it matches everything",
    r"is missing; (must be here or|a template that matches everything)",
    r"must sum to at most 1e15",
    # Between fields, and between a field and the path.
    r"must be that of the path",
    r"(is missing; )?must be shorter than the lease_length",
    r"must be at most the refresh_interval",
    r"must be rate: \w+ is for rates only",
    r"must be left out: \w+ (takes no parameters|is for PRIORITY_SHARE only)",
    r"must be left out: latency is for gauges only",
    r"(is missing; )?must be observe: \w+ does not divide the capacity",
    r"must be left out while the capacity is 0",
    r"must be (the sum|absent or the highest) of `bands`",
    # Between a patch and the entry that it changes.
    r"must be left out: only `delay` has one",
    r"is missing; must be NO_ALGORITHM",
    r"must be a number from 0 to 1 for (surplus|floor)",
    r"must be a number above 0 and at most 1 for decay_factor",
    r"must be 0 or a number from 0.000001 for granularity",
    # Amounts that depend on the unit and the period.
    r"must be at most (1e9 per second|1e12 units); count in larger units",
    r"must be 0, or at least one whole unit",
    r"must be left out: a gauge has no period",
    r"is missing; must be a resource",
    # Grammars of globs, paths, resources with placeholders, and misspelled methods.
    r"must be a glob (whose|without|with ascending)",
    r"must have (its placeholders in braces|placeholders that have a name)",
    r"must be a resource, such as .*; (unbalanced brace|missing separator|too long|\{header)",
    r"must have (a valid header name|no other placeholders)",
    r"must be a method in upper case, .*; did you mean",
    r"must be .*, the canonical spelling",
]

# Schemas count characters, the server counts bytes of UTF-8.
IN_BYTES = r".*\b(1 to 256|1 to 1024|at most 1024) bytes"

# The server accepts integers written with a decimal point only up to 2 ** 49.
TOO_LARGE_FOR_A_POINT = r"must be an integer from [01] to|invalid type: floating point"


def _reasons(response):
    """The reasons of a rejection."""
    problem = response.json()
    return [error["detail"] for error in problem.get("errors", [])] or [problem["detail"]]


def _is_ascii(case):
    parts = [case.path_parameters, case.query, case.body if case.media_type else None]
    return json.dumps(parts, ensure_ascii=False, default=str).isascii()


def _has_large_float(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return any(map(_has_large_float, value))
    return isinstance(value, float) and value > 2**49


def _is_beyond_schemas(case, response):
    if response.status_code == 412:
        # The current state is unknown to the generator.
        return bool({"if-match", "if-none-match"} & {name.lower() for name in case.headers or {}})
    if response.status_code not in (400, 422):
        return False
    rules = list(BEYOND_SCHEMAS)
    if not _is_ascii(case):
        rules.append(IN_BYTES)
    if _has_large_float(case.body):
        rules.append(TOO_LARGE_FOR_A_POINT)
    if response.status_code == 400:
        # Only cursors from the server are valid.
        rules.append(r"(invalid )?query parameters? `cursor`")
    known = re.compile("|".join(f"(?:{rule})" for rule in rules), re.DOTALL)
    return all(map(known.match, _reasons(response)))


# Deletions by dry runs, which succeed and delete nothing.
_dry_runs = set()


@schemathesis.hook
def before_call(context, case, kwargs):
    """Shortens valid long polls: they would be answered after up to a minute."""
    if case.path == "/v1/hints" and isinstance(case.query, dict):
        try:
            is_valid = 0 <= float(case.query.get("wait", 0)) <= 60
        except (TypeError, ValueError):
            is_valid = False
        if is_valid:
            case.query["wait"] = 0


@schemathesis.hook
def after_call(context, case, response):
    """Records which deletions were dry runs."""
    if case.method.upper() == "DELETE" and response.status_code < 300:
        deleted = f"DELETE {case.formatted_path}"
        if b'"looked_at_all"' in response.content:
            _dry_runs.add(deleted)
        else:
            _dry_runs.discard(deleted)


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Ignores known rejections, and reads of resources that a dry run deleted."""
    kind = type(failure).__name__
    if kind == "RejectedPositiveData":
        return not _is_beyond_schemas(case, response)
    if kind == "UseAfterFree":
        return failure.free not in _dry_runs
    return True
