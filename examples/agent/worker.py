"""A worker that calls a partner within the limit of a fleet, by an agent on the same machine.

    doorman agent --listen unix:/run/doorman/agent.sock --server http://doorman:7300
    python3 worker.py /run/doorman/agent.sock http://127.0.0.1:8080/ 20 60

It would like to send 20 requests per second, for 60 seconds. It states what became of each. With
`feedback` in the template of `partner` the fleet sends what the partner accepts.
"""

import collections
import sys
import time
import urllib.error
import urllib.request

from client import Agent, Refused


def call(url):
    """The outcome of a request, and what else there is to tell."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            response.read()
            return "ok", {}
    except urllib.error.HTTPError as error:
        retry_after = error.headers.get("retry-after", "")
        if error.code == 429 or error.code == 503 and retry_after:
            # A date would have to be compared with that of the response.
            told = {"pause": min(int(retry_after), 3600)} if retry_after.isdigit() else {}
            return "overloaded", told
        return "failed" if error.code >= 500 else "ok", {}
    except OSError:
        return "failed", {}


def work(agent, url):
    try:
        agent.check({"resource_id": "partner"})
    except Refused:
        return "not sent"
    outcome, told = call(url)
    agent.report("partner", outcome, **told)
    return outcome


def main(socket, url, rate, seconds):
    agent = Agent(socket)
    counts = collections.Counter()
    begin = time.monotonic()
    for number in range(int(rate * seconds)):
        time.sleep(max(0, begin + number / rate - time.monotonic()))
        counts[work(agent, url)] += 1
    print(dict(counts), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(float, sys.argv[3:5]))
