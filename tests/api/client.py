"""Uses the clients that openapi-python-client generates; tests/it/generated_clients.rs runs it.

Prints the names of all calls of both clients, then calls the control plane at the address given.
"""

import importlib
import json
import pkgutil
import sys

import agent_client.api
import doorman_client.api
from doorman_client import Client
from doorman_client.api.document import (
    delete_rule,
    get_template,
    patch_rule,
    patch_template,
    put_rule,
    put_template,
)
from doorman_client.api.leases import lease_capacity
from doorman_client.api.probes import get_metrics
from doorman_client.models import (
    CapacityRequest,
    Problem,
    ResourceRequest,
    RuleBody,
    RulePatch,
    TemplateBody,
    TemplatePatch,
)


def calls(api):
    """Imports each call of a client, and returns their names."""
    for module in pkgutil.walk_packages(api.__path__, f"{api.__name__}."):
        if not module.ispkg:
            importlib.import_module(module.name)
            yield module.name.rsplit(".", 1)[1]


print(json.dumps({it.__name__: sorted(calls(it)) for it in (doorman_client.api, agent_client.api)}))

with Client(base_url=sys.argv[1]) as client:
    request = CapacityRequest(client_id="py", resources=[ResourceRequest("tenant/py", wants=30)])
    lease = lease_capacity.sync(client=client, body=request).resources[0]
    assert (lease.gets.capacity, lease.limit) == (30, 1000), lease

    template = get_template.sync("api", client=client)
    changed = patch_template.sync("api", client=client, body=TemplatePatch(capacity=10))
    assert changed.capacity == 10, changed
    # A patch changes nothing that its caller does not name.
    template.capacity = 10
    assert get_template.sync("api", client=client) == template
    created = put_template.sync_detailed(
        "tenant/py", client=client, body=TemplateBody(capacity=7, safe_capacity=-1)
    )
    assert (created.status_code, created.parsed.identifier_glob) == (201, "tenant/py"), created

    rule = put_rule.sync("py", client=client, body=RuleBody(service="*", resource="api", burst=2))
    assert rule.name == "py", rule
    rule = patch_rule.sync("py", client=client, body=RulePatch(priority=3))
    assert (rule.burst, rule.priority) == (2, 3), rule
    assert delete_rule.sync_detailed("py", client=client).status_code in (200, 204)

    missing = get_template.sync("nowhere", client=client)
    assert isinstance(missing, Problem) and missing.type_ == "/problems/not-found", missing
    assert "doorman_leases 1" in get_metrics.sync(client=client)
