package kit;

import java.io.PrintWriter;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * What Kafka makes of names: `names` in hex, DER, separated by commas, or one `name` as text; by `rules`.
 * Prints {"dn": …, "name": …} for each, null for what is refused, or {"rules": null} for rules that are none.
 */
final class PrincipalName implements Session.Verb {
    @Override
    public void run(Arguments arguments, PrintWriter out) {
        SslPrincipalMapper mapper;
        try {
            mapper = SslPrincipalMapper.fromRules(arguments.get("rules"));
        } catch (RuntimeException refused) {
            out.println(Json.of("rules", null));
            return;
        }
        if (arguments.has("name")) {
            String name = arguments.get("name");
            out.println(Json.of("dn", name, "name", mapped(mapper, name)));
            return;
        }
        for (String hex : arguments.get("names").split(",")) {
            String name = name(hex);
            out.println(Json.of("dn", name, "name", name == null ? null : mapped(mapper, name)));
        }
    }

    private static String name(String hex) {
        byte[] der = new byte[hex.length() / 2];
        for (int i = 0; i < der.length; i++) {
            der[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        try {
            return new X500Principal(der).getName();
        } catch (IllegalArgumentException refused) {
            return null;
        }
    }

    private static String mapped(SslPrincipalMapper mapper, String name) {
        try {
            return mapper.getName(name);
        } catch (Exception refused) {
            return null;
        }
    }
}
