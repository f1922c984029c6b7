"""What each client is told about tokens; that they get some, tests/integration/test_jobs_with_tokens.py shows."""

from __future__ import annotations

from forebay_pipeline.journal.client_credentials import ClientCredentials
from tests.kit.sasl import MODULES

URL = "https://issuer.example/token"
SECRET = 'canary "1" \\'
MODULE = MODULES["OAUTHBEARER"]


def test_each_client_is_told_by_its_own_names() -> None:
    credentials = ClientCredentials(URL, "jobs", SECRET, "kafka")
    assert credentials.librdkafka() == {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": URL,
        "sasl.oauthbearer.client.id": "jobs",
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.scope": "kafka",
        "https.ca.pem": "",
    }
    assert credentials.java() == {
        "sasl.login.callback.handler.class": MODULE.replace("LoginModule", "LoginCallbackHandler"),
        "sasl.oauthbearer.token.endpoint.url": URL,
        "sasl.jaas.config": f'{MODULE} required clientId="jobs" clientSecret="canary \\"1\\" \\\\" scope="kafka";',
    }
    assert "canary" not in repr(credentials)


def test_certificates_stay_on_one_line_which_would_end_the_value() -> None:
    line = ClientCredentials(URL, "jobs", SECRET, trusted="-----BEGIN\r\nabc\n").java()["sasl.jaas.config"]
    assert line.endswith(' ssl.truststore.type="PEM" ssl.truststore.certificates="-----BEGIN\\r\\nabc\\n";')
