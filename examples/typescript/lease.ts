// Leases a resource, changes its capacity and releases it, with types generated from the OpenAPI
// document. Prints a line of JSON per step.
//
//   npm ci && npm start -- http://127.0.0.1:7300
//
// With authentication, DOORMAN_TOKEN needs the scopes capacity, status:read, templates:read and
// templates:write.

import createClient from "openapi-fetch";
import type { components, paths } from "./doorman.js";

type Problem = components["schemas"]["Problem"];

const [server = "http://127.0.0.1:7300", resource_id = "typescript/db"] = process.argv.slice(2);
const token = process.env["DOORMAN_TOKEN"];
const doorman = createClient<paths>({
  baseUrl: server,
  headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
});
const client_id = `typescript-${process.pid}`;
const run = Math.floor(Math.random() * Number.MAX_SAFE_INTEGER);

/** Every error is a problem document; its type is stable, its texts are not. */
function explain(problem: Problem): string {
  switch (problem.type) {
    case "/problems/precondition-failed":
      return "changed by someone else";
    case "/problems/invalid-request":
      return (problem.errors ?? []).map((error) => `${error.pointer} ${error.detail}`).join("; ");
    case "/problems/too-many-requests":
    case "/problems/unavailable":
      return `retry later: ${problem.detail}`;
    default:
      return `${problem.title}: ${problem.detail}`;
  }
}

function fail(problem: Problem): never {
  throw new Error(explain(problem));
}

function print(step: string, fields: object): void {
  console.log(JSON.stringify({ step, ...fields }));
}

/** Requests a lease. It counts from the moment of sending, on this process's monotonic clock. */
async function lease(wants: number, seq: number) {
  const sent = performance.now();
  const { data, error } = await doorman.POST("/v1/capacity", {
    body: { client_id, run, seq, resources: [{ resource_id, wants }] },
  });
  if (error) fail(error);
  const [answer] = data.resources;
  if (answer === undefined) throw new Error("expected one answer per resource");
  return { ...answer, ends: sent + answer.gets.lease_length * 1000 };
}

/** Replaces a template unless it changed since `tag`; without a tag, creates it. */
async function put(capacity: number, tag: string | null) {
  return doorman.PUT("/v1/templates/{identifier_glob}", {
    params: {
      path: { identifier_glob: resource_id },
      header: tag === null ? { "If-None-Match": "*" } : { "If-Match": tag },
    },
    body: { capacity, algorithm: { kind: "FAIR_SHARE", refresh_interval: 1 } },
  });
}

const leased = await lease(30, 1);
print("leased", { client_id, capacity: leased.gets.capacity, reason: leased.reason, limit: leased.limit });

// The first change creates the template, the second replaces it, the third has a stale tag.
const created = await put(20, null);
if (created.error) fail(created.error);
const first = created.response.headers.get("etag");
const changed = await put(10, first);
if (changed.error) fail(changed.error);
const late = await put(5, first);
print("changed", { from: first, late: late.error && explain(late.error), type: late.error?.type });

// From the next refresh on the lease is within the new limit.
const refreshed = await lease(30, 2);
const view = await doorman.GET("/v1/resources/{resource_id}", { params: { path: { resource_id } } });
if (view.error) fail(view.error);
print("refreshed", { capacity: refreshed.gets.capacity, has: view.data.sum_has, of: view.data.capacity, template: view.data.template });

// Hold it until standard input ends. A real client refreshes it in time.
for await (const _ of process.stdin);

const released = await doorman.POST("/v1/capacity/release", { body: { client_id, run, seq: 3, resource_ids: [resource_id] } });
if (released.error) fail(released.error);
print("released", { early: refreshed.ends > performance.now() });
