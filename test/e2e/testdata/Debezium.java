// Debezium's embedded engine, on one table, for TestDebezium. It is run as a source file:
//
//   java -cp 'DIR/*' Debezium.java DIRECTORY DATABASE.TABLE USER PASSWORD HOST:PORT
//
// It takes a snapshot, and follows. When the engine ends, another one goes on from the offsets and the schema history in the
// directory. For each change it prints "op key gtid", and "run" when an engine begins. It ends when its standard input does.

import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

public class Debezium {
    private static volatile boolean ended;
    private static volatile DebeziumEngine<?> running;

    public static void main(String[] args) throws Exception {
        Thread main = Thread.currentThread();
        Thread input = new Thread(() -> awaitEnd(main));
        input.setDaemon(true);
        input.start();
        while (!ended) {
            System.out.println("run");
            DebeziumEngine<RecordChangeEvent<SourceRecord>> engine = engine(args);
            running = engine;
            if (!ended) {
                engine.run();
            }
        }
        System.out.println("end");
        System.exit(0);
    }

    private static void awaitEnd(Thread main) {
        try {
            while (System.in.read() >= 0) {
            }
            ended = true;
            if (running != null) {
                running.close();
            }
            main.join(20_000);
        } catch (IOException | InterruptedException e) {
            System.err.println(e);
        }
        System.exit(1);
    }

    private static DebeziumEngine<RecordChangeEvent<SourceRecord>> engine(String[] args) {
        String[] parts = args[4].split(":");
        Properties p = new Properties();
        p.setProperty("name", "tool");
        p.setProperty("connector.class", "io.debezium.connector.mysql.MySqlConnector");
        p.setProperty("topic.prefix", "tool");
        p.setProperty("database.hostname", parts[0]);
        p.setProperty("database.port", parts[1]);
        p.setProperty("database.user", args[2]);
        p.setProperty("database.password", args[3]);
        p.setProperty("database.ssl.mode", "required");
        p.setProperty("database.server.id", "7301");
        // A connection that ends in order is only missed after this time.
        p.setProperty("connect.keep.alive.interval.ms", "2000");
        p.setProperty("table.include.list", args[1]);
        p.setProperty("snapshot.mode", "initial");
        p.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        p.setProperty("offset.storage.file.filename", Path.of(args[0], "offsets").toString());
        p.setProperty("offset.flush.interval.ms", "0");
        p.setProperty("schema.history.internal", "io.debezium.storage.file.history.FileSchemaHistory");
        p.setProperty("schema.history.internal.file.filename", Path.of(args[0], "history").toString());
        return DebeziumEngine.create(ChangeEventFormat.of(Connect.class)).using(p)
                .using((success, message, error) -> System.out.println("ended " + success + " " + ("" + message).replace('\n', ' ')))
                .notifying(Debezium::take).build();
    }

    private static void take(List<RecordChangeEvent<SourceRecord>> records,
            DebeziumEngine.RecordCommitter<RecordChangeEvent<SourceRecord>> committer) throws InterruptedException {
        StringBuilder out = new StringBuilder();
        for (RecordChangeEvent<SourceRecord> event : records) {
            SourceRecord record = event.record();
            if (record.value() instanceof Struct value && value.schema().field("op") != null) {
                Struct key = (Struct) record.key();
                out.append(value.getString("op")).append(' ').append(key.get(key.schema().fields().get(0))).append(' ')
                        .append(value.getStruct("source").getString("gtid")).append('\n');
            }
            committer.markProcessed(event);
        }
        System.out.print(out);
        System.out.flush();
        committer.markBatchFinished();
    }
}
