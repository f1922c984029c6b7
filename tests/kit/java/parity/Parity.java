package kit;

import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.KafkaFuture;

/**
 * One scenario over clients' public API, named by `scenario`, on `topic` (three partitions, empty) and names that begin
 * with `prefix`; prints {"result": what the client was told}. Without `scenario` the names of those in class `of`.
 *
 * What no two runs have in common (clocks, ids that brokers make up) is left out; an error that belongs to the outcome
 * is told by its class.
 */
final class Parity implements Session.Verb {
    private static final long GOOD_WITHIN_NANOS = 90_000_000_000L;

    interface Scenario {
        Object run(Arguments arguments) throws Exception;
    }

    interface Call {
        Object run() throws Exception;
    }

    @Override
    public void run(Arguments arguments, PrintWriter out) throws Exception {
        Class<?> of = Class.forName("kit." + arguments.get("of"));
        @SuppressWarnings("unchecked")
        Map<String, Scenario> scenarios = (Map<String, Scenario>) of.getDeclaredMethod("scenarios").invoke(null);
        Object result = arguments.has("scenario")
            ? scenarios.get(arguments.get("scenario")).run(arguments)
            : scenarios.keySet();
        out.println(Json.of("result", result));
    }

    /** What the call answers, or the class of its error. */
    static Object told(Call call) {
        try {
            Object answer = call.run();
            return answer == null ? "done" : answer;
        } catch (Exception error) {
            Throwable cause = error instanceof java.util.concurrent.ExecutionException ? error.getCause() : error;
            return cause.getClass().getSimpleName();
        }
    }

    static Object told(KafkaFuture<?> future) {
        return told((Call) future::get);
    }

    static Map<String, Object> told(Map<?, ? extends KafkaFuture<?>> futures) {
        Map<String, Object> answers = new TreeMap<>();
        futures.forEach((name, future) -> answers.put(name.toString(), told(future)));
        return answers;
    }

    /** In the order of their text: for what clients tell in no order. */
    static List<Object> sorted(Iterable<?> items) {
        List<Object> list = new ArrayList<>();
        items.forEach(item -> list.add(item.toString()));
        list.sort(null);
        return list;
    }

    static Map<String, Object> byName(Map<?, ?> map) {
        Map<String, Object> sorted = new TreeMap<>();
        map.forEach((name, value) -> sorted.put(name.toString(), value));
        return sorted;
    }

    /** The first answer that is good; by time, since round trips are short where brokers have much to do. */
    static Object until(Call ask, java.util.function.Predicate<Object> good) throws Exception {
        long began = System.nanoTime();
        Object answer = told(ask);
        while (!good.test(answer)) {
            if (System.nanoTime() - began > GOOD_WITHIN_NANOS) {
                throw new IllegalStateException("last answer: " + answer);
            }
            Thread.sleep(5);
            answer = told(ask);
        }
        return answer;
    }
}
