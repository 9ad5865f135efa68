"""What no schema can say, and the server refuses all the same.

schemathesis takes it for a failure when data that fits its schema is refused. Such a refusal is let pass here if all of its reasons are
among these. Any other one fails the run: either a schema can say it, and should, or it belongs below.
"""

import json
import re

import schemathesis

# Rules of documents and leases beyond their schemas, by the words in which the server tells of faults.
BEYOND_SCHEMAS = [
    # Between elements: schemas tell equal elements, not unequal ones with equal names, and they do not add.
    r"must (stand|appear) only once",
    r"duplicate (resource|priority)",
    r"must be unique; an earlier (template|rule) has this",
    r"must be left out: \w+ is already set",
    r"must be the last template, since it matches everything",
    r"is missing; (must be here or|a template that matches everything)",
    r"must sum to at most 1e15",
    # Between fields, and between a field and the path.
    r"must be that of the path",
    r"(is missing; )?must be shorter than the lease_length",
    r"must be at most the refresh_interval",
    r"must be rate: \w+ is for rates only",
    r"must be left out: \w+ takes no parameters",
    r"must be a number from 0 to 1 for surplus",
    r"must be 0 or a number from 0.000001 for granularity",
    r"is missing; must be a resource",
    # Grammars: of globs, of the paths of axum, of resources with their placeholders, of methods that are misspelt.
    r"must be a glob (whose|without|with ascending)",
    r"must have (its placeholders in braces|placeholders that have a name)",
    r"must be a resource, such as .*; (unbalanced brace|missing separator|too long|\{header)",
    r"must have (a valid header name|no other placeholders)",
    r"must be a method in upper case, .*; did you mean",
]

# Schemas count characters, the server counts the bytes of UTF-8.
IN_BYTES = r".*\b(1 to 256|1 to 1024|at most 1024) bytes"


# The server takes whole numbers written with a point up to 2 ** 49, where none is taken for another.
TOO_LARGE_FOR_A_POINT = r"must be an integer from [01] to|invalid type: floating point"


def _reasons(response):
    """Why the server refused, a text each."""
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
        # What is there now is for nobody to know beforehand.
        return bool({"if-match", "if-none-match"} & {name.lower() for name in case.headers or {}})
    if response.status_code not in (400, 422):
        return False
    rules = list(BEYOND_SCHEMAS)
    if not _is_ascii(case):
        rules.append(IN_BYTES)
    if _has_large_float(case.body):
        rules.append(TOO_LARGE_FOR_A_POINT)
    if response.status_code == 400:
        # A cursor is opaque, and only those that the server has given out are good.
        rules.append(r"(invalid )?query parameters? `cursor`")
    known = re.compile("|".join(f"(?:{rule})" for rule in rules), re.DOTALL)
    return all(map(known.match, _reasons(response)))


# What was last "deleted" by a dry run, which deletes nothing, though it succeeds.
_only_tried_out = set()


@schemathesis.hook
def after_call(context, case, response):
    """Remembers what each deletion was."""
    if case.method.upper() == "DELETE" and response.status_code < 300:
        deleted = f"DELETE {case.formatted_path}"
        if response.status_code == 204:
            _only_tried_out.discard(deleted)
        else:
            _only_tried_out.add(deleted)


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Keeps a failure, unless it is one of these refusals, or reads what was deleted in a dry run."""
    kind = type(failure).__name__
    if kind == "RejectedPositiveData":
        return not _is_beyond_schemas(case, response)
    if kind == "UseAfterFree":
        return failure.free not in _only_tried_out
    return True
