//! A minimal HTTP client, so that tests check the bytes on the socket independently of any library.

use std::fmt;
use std::time::Duration;

use fleet_http::ListenAddress;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// Time limit of an exchange, so that a defect cannot hang the tests.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A parsed response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl HttpResponse {
    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Parses the body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// Returns the message of an error response, and checks that its code equals the status.
    pub(crate) fn message(&self) -> String {
        let error = &self.json()["error"];
        assert_eq!(error["code"], self.status, "{self}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self}");
        error["message"].as_str().expect("no error message").to_owned()
    }

    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("no status line");
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let chunked = headers.iter().any(|(_, value)| value == "chunked");
        let body = if chunked { unchunked(body) } else { body.to_owned() };
        Self { status: status.parse().expect("invalid status"), headers, body }
    }
}

impl fmt::Display for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.body.is_empty() { "" } else { " " };
        write!(f, "{}{space}{}", self.status, self.body)
    }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("invalid chunk size");
        body.push_str(&after[..size]);
        rest = &after[size + 2..];
        if size == 0 {
            break;
        }
    }
    body
}

/// Sends bytes verbatim and returns everything received until the server closes the connection.
pub(crate) async fn exchange(at: &ListenAddress, bytes: &[u8]) -> Vec<u8> {
    let talk = async {
        match at {
            ListenAddress::Unix(path) => {
                talk(UnixStream::connect(path).await.unwrap(), bytes).await
            }
            ListenAddress::Tcp(address) | ListenAddress::Tls(address) => {
                talk(TcpStream::connect(address).await.unwrap(), bytes).await
            }
        }
    };
    timeout(DEADLINE, talk).await.expect("the server did not close the connection")
}

async fn talk(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    bytes: &[u8],
) -> Vec<u8> {
    // A server that refuses early may close before everything is written.
    let _cut = stream.write_all(bytes).await;
    let mut response = Vec::new();
    let _cut = stream.read_to_end(&mut response).await;
    response
}

/// Sends a request and returns its response.
pub(crate) async fn request(
    at: &ListenAddress,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpResponse {
    let mut head =
        format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    let bytes = exchange(at, format!("{head}\r\n{body}").as_bytes()).await;
    HttpResponse::parse(&bytes)
}
