// Settings of openapi-ts for `tests/it/generated_clients.rs`.
const output = (path) => ({ path, importFileExtension: ".js" });

export default [
  { input: "openapi.json", output: output("doorman_client") },
  { input: "agent.json", output: output("agent_client") },
];
