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

    def release(self, permits):
        """Gives permits back. Without it they end after their `hold_seconds`."""
        self._post("/v1/check/release", {"permits": permits})

    @contextlib.contextmanager
    def holding(self, *resources):
        permits = self.check(*resources)
        try:
            yield
        finally:
            if permits:
                self.release(permits)

    def _post(self, path, body):
        headers = {"content-type": "application/json"}
        for is_reused in (self.connection.sock is not None, False):
            try:
                self.connection.request("POST", path, json.dumps(body), headers)
                response = self.connection.getresponse()
                answer = json.load(response)
                break
            except (OSError, http.client.HTTPException) as error:
                # The next call connects again.
                self.connection.close()
                # The agent closes connections that are idle for 75 s.
                if not (is_reused and isinstance(error, ConnectionError)):
                    raise
        if response.status == 200:
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
                print(number, "done", flush=True)
        except Refused as refused:
            print(number, "refused by", *refused.resources, flush=True)
            time.sleep(refused.retry_after)
        except OSError as error:
            # Without an agent this program decides itself: here it goes on.
            print(number, "no agent:", error, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
