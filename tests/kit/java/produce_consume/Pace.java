package kit;

import java.util.concurrent.locks.LockSupport;

/** Waiting for the moment when a record is due. */
final class Pace {
    private Pace() {}

    static void waitUntil(long nanos) {
        for (long left = nanos - System.nanoTime(); left > 0; left = nanos - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }
}
