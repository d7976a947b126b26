// Canal's parser, on one table, for TestCanal. It is run as a source file:
//
//   java -cp 'DIR/*' Canal.java GTIDS DATABASE.TABLE USER PASSWORD HOST:PORT
//
// It follows from behind the GTIDs, and takes no snapshot. When its connection ends, it goes on by itself from the last transaction
// that it has told of. For each row it prints "op key gtid". It ends when its standard input does.

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import com.alibaba.otter.canal.filter.aviater.AviaterRegexFilter;
import com.alibaba.otter.canal.parse.inbound.mysql.MysqlEventParser;
import com.alibaba.otter.canal.parse.index.MemoryLogPositionManager;
import com.alibaba.otter.canal.parse.support.AuthenticationInfo;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.position.EntryPosition;
import com.alibaba.otter.canal.sink.AbstractCanalEventSink;
import com.google.protobuf.InvalidProtocolBufferException;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.util.List;
import org.slf4j.LoggerFactory;

public class Canal {
    private static final PrintStream OUT = System.out;

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // Canal's log
        ((Logger) LoggerFactory.getLogger(org.slf4j.Logger.ROOT_LOGGER_NAME)).setLevel(Level.WARN);
        String[] at = args[4].split(":");
        EntryPosition from = new EntryPosition();
        from.setGtid(args[0]);
        MysqlEventParser parser = new MysqlEventParser();
        parser.setDestination("tool");
        parser.setConnectionCharset("UTF-8");
        parser.setMasterInfo(new AuthenticationInfo(new InetSocketAddress(at[0], Integer.parseInt(at[1])), args[2], args[3]));
        parser.setSlaveId(7302);
        parser.setIsGTIDMode(true);
        parser.setMasterPosition(from);
        parser.setEnableTsdb(false);
        parser.setEventFilter(new AviaterRegexFilter(args[1].replace(".", "\\.")));
        MemoryLogPositionManager places = new MemoryLogPositionManager();
        places.start();
        parser.setLogPositionManager(places);
        parser.setEventSink(new Sink());
        parser.start();
        OUT.println("run");
        while (System.in.read() >= 0) {
        }
        parser.stop();
        OUT.println("end");
        System.exit(0);
    }

    private static class Sink extends AbstractCanalEventSink<List<CanalEntry.Entry>> {
        @Override
        public boolean sink(List<CanalEntry.Entry> entries, InetSocketAddress from, String destination) {
            StringBuilder out = new StringBuilder();
            for (CanalEntry.Entry entry : entries) {
                if (entry.getEntryType() != CanalEntry.EntryType.ROWDATA) {
                    continue;
                }
                try {
                    CanalEntry.RowChange change = CanalEntry.RowChange.parseFrom(entry.getStoreValue());
                    for (CanalEntry.RowData row : change.getRowDatasList()) {
                        String op = change.getEventType() == CanalEntry.EventType.INSERT ? "c" : change.getEventType().name();
                        out.append(op).append(' ').append(row.getAfterColumns(0).getValue()).append(' ').append(entry.getHeader().getGtid()).append('\n');
                    }
                } catch (InvalidProtocolBufferException e) {
                    throw new IllegalStateException(e);
                }
            }
            OUT.print(out);
            OUT.flush();
            return true;
        }
    }
}
