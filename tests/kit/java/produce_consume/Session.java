package kit;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;

/**
 * One JVM, many commands: reads a line "verb name=value …" from stdin (values URL-encoded), answers with lines of JSON
 * on stdout, the last of them {"done":true} or {"failed":"…"}, and takes the next line. Ends with stdin.
 *
 * Verbs' classes are found by name when they are first asked for, so that a client too old for one never loads it.
 */
public final class Session {
    interface Verb {
        void run(Arguments arguments, PrintWriter out) throws Exception;
    }

    private Session() {}

    public static void main(String[] unused) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintWriter out =
            new PrintWriter(new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8)));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            try {
                Verb verb = (Verb) Class.forName("kit." + words[0]).getDeclaredConstructor().newInstance();
                verb.run(new Arguments(words), out);
                out.println(Json.of("done", true));
            } catch (Throwable failure) {
                Throwable cause = failure.getCause() == null ? failure : failure.getCause();
                out.println(Json.of("failed", cause.toString()));
            }
            out.flush();
        }
    }
}
