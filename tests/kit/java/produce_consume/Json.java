package kit;

import java.util.Base64;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/** Writes JSON: maps, iterables, numbers, booleans, null, byte[] as base64, anything else as a string. */
final class Json {
    private Json() {}

    static String of(Object... namesAndValues) {
        return write(map(namesAndValues));
    }

    static Map<String, Object> map(Object... namesAndValues) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            map.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return map;
    }

    static String write(Object value) {
        StringBuilder text = new StringBuilder();
        write(value, text);
        return text.toString();
    }

    private static void write(Object value, StringBuilder text) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            text.append(value);
        } else if (value instanceof byte[]) {
            text.append('"').append(Base64.getEncoder().encodeToString((byte[]) value)).append('"');
        } else if (value instanceof Map) {
            writeMap((Map<?, ?>) value, text);
        } else if (value instanceof Iterable) {
            text.append('[');
            for (Iterator<?> items = ((Iterable<?>) value).iterator(); items.hasNext(); ) {
                write(items.next(), text);
                text.append(items.hasNext() ? "," : "");
            }
            text.append(']');
        } else {
            writeString(value.toString(), text);
        }
    }

    private static void writeMap(Map<?, ?> map, StringBuilder text) {
        text.append('{');
        boolean first = true;
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            text.append(first ? "" : ",");
            first = false;
            writeString(entry.getKey().toString(), text);
            text.append(':');
            write(entry.getValue(), text);
        }
        text.append('}');
    }

    private static void writeString(String value, StringBuilder text) {
        text.append('"');
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < ' ') {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        text.append('"');
    }
}
