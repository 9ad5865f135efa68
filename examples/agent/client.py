"""The limits of a fleet in Python, by an agent on the same machine.

    doorman agent --listen unix:/run/doorman/agent.sock --server http://doorman:7300
    python3 client.py /run/doorman/agent.sock api pool

Each unit of work takes a token of the rate `api`, and a unit of the gauge `pool` while it runs.
"""

import contextlib
import http.client
import json
import socket
import sys
import time


class Refused(Exception):
    """A resource does not admit the work. Nothing was taken."""

    def __init__(self, problem, retry_after):
        super().__init__(problem["detail"])
        self.resources = problem.get("violated-policies", [])
        self.retry_after = retry_after


class AgentConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=5)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Agent:
    """Not for several threads: each needs its own."""

    def __init__(self, path):
        self.connection = AgentConnection(path)

    def check(self, *resources):
        """Takes of all resources or of none, and returns the permits of gauges."""
        return [it["permit"] for it in self._post("/v1/check", {"resources": resources})["permits"]]

    def release(self, permits, outcome="none"):
        """Gives permits back. Without it they end after their `hold_seconds`."""
        permits = [{"permit": permit, "outcome": outcome} for permit in permits]
        self._post("/v1/check/release", {"permits": permits})

    def report(self, resource_id, outcome, **told):
        """States what became of work without a permit: `ok`, `overloaded` or `failed`."""
        report = {"resource_id": resource_id, "outcome": outcome, **told}
        self._post("/v1/check/outcome", {"resources": [report]})

    @contextlib.contextmanager
    def holding(self, *resources):
        """Work that raises an exception failed. For work that the target refused, because it has
        too much to do, call `report` with `overloaded` and a `pause`: its `Retry-After`."""
        permits = self.check(*resources)
        outcome = "failed"
        try:
            yield
            outcome = "ok"
        finally:
            if permits:
                self.release(permits, outcome)

    def _post(self, path, body):
        headers = {"content-type": "application/json"}
        for is_reused in (self.connection.sock is not None, False):
            try:
                self.connection.request("POST", path, json.dumps(body), headers)
                response = self.connection.getresponse()
                answer = json.loads(response.read() or "null")
                break
            except (OSError, http.client.HTTPException) as error:
                # The next call connects again.
                self.connection.close()
                # The agent closes connections that are idle for 75 s.
                if not (is_reused and isinstance(error, ConnectionError)):
                    raise
        if response.status in (200, 204):
            return answer
        if response.status in (429, 503):
            raise Refused(answer, float(response.headers.get("retry-after", 1)))
        raise ValueError(answer["detail"])


def main(path, rate, gauge):
    agent = Agent(path)
    for number in range(5):
        try:
            with agent.holding(
                {"resource_id": rate},
                {"resource_id": gauge, "unit": "gauge", "hold_seconds": 30},
            ):
                time.sleep(0.01)
                agent.report(rate, "ok")
                print(number, "done", flush=True)
        except Refused as refused:
            print(number, "refused by", *refused.resources, flush=True)
            time.sleep(refused.retry_after)
        except OSError as error:
            # Without an agent this program decides itself: here it goes on.
            print(number, "no agent:", error, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
