package kit;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;

/** A command's name=value words. "prop.X=Y" is the client's own setting X. */
final class Arguments {
    private final Map<String, String> values = new LinkedHashMap<>();

    Arguments(String[] words) {
        for (int i = 1; i < words.length; i++) {
            int at = words[i].indexOf('=');
            String value = URLDecoder.decode(words[i].substring(at + 1), StandardCharsets.UTF_8);
            values.put(words[i].substring(0, at), value);
        }
    }

    String get(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing argument " + name);
        }
        return value;
    }

    String get(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    boolean is(String name) {
        return "true".equals(values.get(name));
    }

    long number(String name, long otherwise) {
        return values.containsKey(name) ? Long.parseLong(values.get(name)) : otherwise;
    }

    /** The client's settings: the bootstrap servers and every prop.X. */
    Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", get("bootstrap"));
        values.forEach((name, value) -> {
            if (name.startsWith("prop.")) {
                properties.put(name.substring("prop.".length()), value);
            }
        });
        return properties;
    }
}
