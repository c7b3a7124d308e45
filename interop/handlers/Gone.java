import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** Null pointers and stacks that overflow, which the JVM learns of by SIGSEGV, while registered memory is gone. */
public class Gone {
    static native void open();

    static native void round(int own);

    static native void crash();

    static final int ROUNDS = 200;
    static Gone nowhere;
    int field;

    static boolean fault(Gone gone) {
        try {
            gone.field++;
            return false;
        } catch (NullPointerException expected) {
            return true;
        }
    }

    static int deeper(int depth) {
        return 1 + deeper(depth + 1);
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            System.err.println(what);
            System.exit(1);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        System.load(arguments[0]);
        open();
        if (arguments.length > 1) {
            round(0);
            crash();
        }
        AtomicBoolean over = new AtomicBoolean();
        AtomicLong own = new AtomicLong();
        Thread[] others = new Thread[3];
        for (int i = 0; i < others.length; i++) {
            others[i] = new Thread(() -> {
                while (!over.get()) {
                    check(fault(nowhere), "a null pointer was followed");
                    own.incrementAndGet();
                }
            });
            others[i].start();
        }
        int overflows = 0;
        for (int i = 0; i < ROUNDS; i++) {
            round(i % 2);
            check(fault(nowhere), "a null pointer was followed");
            try {
                deeper(0);
            } catch (StackOverflowError expected) {
                overflows++;
            }
        }
        over.set(true);
        for (Thread other : others) {
            other.join();
        }
        check(overflows == ROUNDS, "a stack did not overflow");
        check(own.get() >= ROUNDS, "hardly any faults of its own");
        System.out.println(ROUNDS + " rounds, " + own + " null pointers beside them");
    }
}
