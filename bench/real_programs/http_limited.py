"""A server that answers four requests at once, and four workers that ask it: more win nothing."""

TRUTH = {"causes": ["latency-bound"], "hot": "requests.", "most_promised": 1.2}

import http_latency

if __name__ == "__main__":
    http_latency.main(places=4, workers=4)
