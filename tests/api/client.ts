// Uses the clients that @hey-api/openapi-ts generates; tests/it/generated_clients.rs runs it.
//
// Prints the names of all calls of both clients, then calls the control plane at the address given.
import assert from "node:assert/strict";

import * as agent from "./agent_client/sdk.gen.js";
import { client } from "./doorman_client/client.gen.js";
import * as doorman from "./doorman_client/sdk.gen.js";

console.log(JSON.stringify({ doorman: Object.keys(doorman), agent: Object.keys(agent) }));

client.setConfig({ baseUrl: process.argv[2] ?? "" });

const request = { client_id: "ts", resources: [{ resource_id: "tenant/ts", wants: 30 }] };
const lease = (await doorman.leaseCapacity({ body: request })).data?.resources[0];
assert.deepEqual([lease?.gets.capacity, lease?.limit], [30, 1000]);

const api = { path: { identifier_glob: "api" } };
const template = (await doorman.getTemplate(api)).data;
assert.ok(template);
const changed = await doorman.patchTemplate({ ...api, body: { capacity: 10 } });
assert.equal(changed.response.status, 200);
// A patch changes nothing that its caller does not name.
assert.deepEqual((await doorman.getTemplate(api)).data, { ...template, capacity: 10 });
const created = await doorman.putTemplate({
  path: { identifier_glob: "tenant/ts" },
  body: { capacity: 7, safe_capacity: -1 },
});
assert.deepEqual([created.response.status, created.error], [201, undefined]);

const named = { path: { name: "ts" } };
await doorman.putRule({ ...named, body: { service: "*", resource: "api", burst: 2 } });
await doorman.patchRule({ ...named, body: { priority: 3 } });
const rule = (await doorman.getRule(named)).data;
assert.deepEqual([rule?.burst, rule?.priority], [2, 3]);
const deleted = await doorman.deleteRule(named);
assert.ok([200, 204].includes(deleted.response.status));

const missing = await doorman.getTemplate({ path: { identifier_glob: "nowhere" } });
assert.equal(missing.error?.type, "/problems/not-found");
const metrics = await doorman.getMetrics({ parseAs: "text" });
assert.match(String(metrics.data), /doorman_leases 1/);
