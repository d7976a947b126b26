"""PyMySQL's own tests at one address: prints "ok NAME", "skip NAME" or "FAIL NAME why" for each.

PyPI has them up to release 0.10.1. They run against the installed release, which lacks the modules _compat and util
that they use.
"""

import json
import os
import sys
import types

import pymysql
import pytest

HOST, PORT = os.environ["WRITE"].rsplit(":", 1)
pymysql.__path__.append(os.path.join(os.environ["DRIVERS"], "pymysql-tests", "pymysql"))
sys.modules["pymysql._compat"] = types.SimpleNamespace(PY2=False, CPYTHON=False, text_type=str, long_type=int)
pymysql.util = types.SimpleNamespace(int2byte=lambda i: bytes([i]))

# Where the tests look for their two databases.
OPTIONS = {"ssl": {"verify_mode": "none"}} if "SPLIT" in os.environ else {"ssl_disabled": True}
with open(os.path.join(pymysql.__path__[-1], "tests", "databases.json"), "w") as f:
    account = {"host": HOST, "port": int(PORT), "user": os.environ["DB_USER"], "password": os.environ["DB_PASSWORD"]}
    json.dump([{**account, "db": db, "local_infile": True, **OPTIONS} for db in ("drivers", "drivers2")], f)


class Report:
    def __init__(self):
        self.ended = set()

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.rpartition("/")[2]
        if report.passed and report.when != "call" or name in self.ended:
            return
        self.ended.add(name)
        if report.failed:
            why = report.longrepr.reprcrash.message if hasattr(report.longrepr, "reprcrash") else report.longrepr
            print(f"\nFAIL {name} " + str(why).replace("\n", " ")[:600], flush=True)
        else:
            print(f"\n{'ok' if report.passed else 'skip'} {name}", flush=True)


pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:warnings", "--pyargs", "pymysql.tests"], plugins=[Report()])
