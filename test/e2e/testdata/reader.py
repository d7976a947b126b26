"""Reads a binlog and prints one line of JSON for each whole transaction."""

import json
import sys

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import GtidEvent, QueryEvent, XidEvent
from pymysqlreplication.row_event import WriteRowsEvent

host, port, user, password, by, once, has, log_file, log_pos = sys.argv[1:]
begin = {"auto_position": has} if by == "gtid" else {
    "log_file": log_file, "log_pos": int(log_pos), "resume_stream": True}
if by == "gtid" and not has:
    # The library takes an empty set for none at all; this one has nothing.
    begin = {"auto_position": "00000000-0000-0000-0000-000000000001:1"}
stream = BinLogStreamReader(
    connection_settings={"host": host, "port": int(port), "user": user, "passwd": password},
    server_id=1000 + len(by), blocking=once != "true", slave_heartbeat=1, verify_checksum=True,
    ignore_decode_errors=True,  # without row metadata it takes VARBINARY for text
    only_events=[GtidEvent, QueryEvent, XidEvent, WriteRowsEvent], **begin)
gtid, rows = None, []
for event in stream:
    if isinstance(event, GtidEvent):
        gtid, rows = event.gtid, []
    elif isinstance(event, WriteRowsEvent):
        if event.table == "ledger":
            rows += [next(iter(row["values"].values())) for row in event.rows]
    elif isinstance(event, XidEvent) or event.query not in ("BEGIN", b"BEGIN"):
        print(json.dumps({"GTID": gtid, "Rows": rows, "File": stream.log_file, "Offset": stream.log_pos}), flush=True)
        gtid = None
stream.close()
