package kit;

import java.util.Arrays;

/** What a run's latencies come to, in ms. */
final class Latencies {
    private Latencies() {}

    /** `latencies` in ns, negative where there is none; `elapsed` the run's ns. */
    static Object stats(long[] latencies, long elapsed) {
        long[] known = Arrays.stream(latencies).filter(nanos -> nanos >= 0).sorted().toArray();
        if (known.length == 0) {
            return Json.map("acknowledged", 0, "seconds", elapsed / 1e9);
        }
        return Json.map(
            "acknowledged", known.length,
            "seconds", elapsed / 1e9,
            "average_ms", Arrays.stream(known).average().getAsDouble() / 1e6,
            "p50_ms", quantile(known, 0.50),
            "p99_ms", quantile(known, 0.99),
            "p999_ms", quantile(known, 0.999),
            "max_ms", known[known.length - 1] / 1e6);
    }

    private static double quantile(long[] sorted, double q) {
        return sorted[(int) Math.min(sorted.length - 1, Math.floor(q * sorted.length))] / 1e6;
    }
}
