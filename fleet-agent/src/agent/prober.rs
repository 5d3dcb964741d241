//! Health checks on the machine: HTTP requests, TCP connections and commands.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::health::HealthTarget;
use fleet_unitfile::values::Timespan;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, Command};

/// Runs health checks. Tests pass one with scripted results.
#[async_trait]
pub trait HealthProber: Send + Sync + 'static {
    /// Checks a target once, for at most `timeout`. The caller may drop the future, which ends the
    /// check.
    ///
    /// # Errors
    ///
    /// Returns the failure in one short line, with the target.
    async fn probe(&self, target: &HealthTarget, timeout: Duration) -> Result<(), String>;
}

/// Runs health checks on this machine. Requires a tokio runtime with I/O and time enabled.
///
/// Commands run as the user of this process, in the root directory, with `PATH` as their only
/// variable.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct SystemProber;

#[async_trait]
impl HealthProber for SystemProber {
    async fn probe(&self, target: &HealthTarget, timeout: Duration) -> Result<(), String> {
        let attempt = async {
            match target {
                HealthTarget::Http { host, port, path } => http_get(host, *port, path).await,
                HealthTarget::Tcp { host, port } => connect(host, *port).await.map(drop),
                HealthTarget::Exec { argv } => run(argv).await,
            }
        };
        let result = tokio::time::timeout(timeout, attempt).await.unwrap_or_else(|_elapsed| {
            Err(format!("no answer within {}", Timespan::Finite(timeout)))
        });
        result.map_err(|problem| {
            let subject = match target {
                HealthTarget::Http { .. } => format!("GET {target}"),
                HealthTarget::Tcp { .. } => target.to_string(),
                // Arguments may be long or secret.
                HealthTarget::Exec { argv } => argv.first().cloned().unwrap_or_default(),
            };
            one_line(&format!("{subject}: {problem}"))
        })
    }
}

/// Maximum length of a message, in characters. Messages are stored and published.
const MAX_MESSAGE: usize = 300;

/// Removes control characters, and shortens the text.
fn one_line(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(MAX_MESSAGE).collect()
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((host, port)).await.map_err(|error| describe(&error))
}

/// Describes an error by its kind, as `connection refused`. Errors of name resolution have no kind,
/// but a text of their own.
fn describe(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(_) if error.kind().to_string() != UNKNOWN_KIND => error.kind().to_string(),
        _ => error.to_string(),
    }
}

/// Text of the kind that errors without a kind have.
const UNKNOWN_KIND: &str = "uncategorized error";

/// Sends a GET request. Succeeds if the status of the response is 200 to 399. Reads nothing beyond
/// the status, and follows no redirect.
async fn http_get(host: &str, port: u16, path: &str) -> Result<(), String> {
    let mut stream = connect(host, port).await?;
    let authority = match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: fleet/{}\r\nAccept: */*\r\n\
         Connection: close\r\n\r\n",
        env!("CARGO_PKG_VERSION")
    );
    stream.write_all(request.as_bytes()).await.map_err(|error| describe(&error))?;
    let mut head = Vec::new();
    loop {
        if let Some(result) = response(&head) {
            return result;
        }
        if head.len() >= MAX_HEAD {
            return Err("the response is not HTTP".to_owned());
        }
        let read = stream.read_buf(&mut head).await.map_err(|error| describe(&error))?;
        if read == 0 {
            return Err("the connection was closed before a response".to_owned());
        }
    }
}

/// Maximum length of a status line with the interim responses before it, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// Evaluates the begin of a response. Returns `None` if it is too short. Skips interim responses,
/// whose status is below 200.
fn response(mut head: &[u8]) -> Option<Result<(), String>> {
    loop {
        let end = head.iter().position(|byte| *byte == b'\n')?;
        let line = String::from_utf8_lossy(&head[..end]);
        let Some((status, text)) = parse_status(&line) else {
            return Some(Err("the response is not HTTP".to_owned()));
        };
        if status >= 200 {
            let is_success = status < 400;
            return Some(if is_success { Ok(()) } else { Err(text.trim().to_owned()) });
        }
        let blank = head.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
        head = &head[blank + 4..];
    }
}

/// Returns the status of a status line, and the status with its reason phrase.
fn parse_status(line: &str) -> Option<(u16, &str)> {
    let (version, text) = line.trim_end().split_once(' ')?;
    let digits = text.get(..3).filter(|digits| digits.bytes().all(|it| it.is_ascii_digit()))?;
    let is_over = text[3..].is_empty() || text[3..].starts_with(' ');
    let status = digits.parse().ok().filter(|_| is_over && version.starts_with("HTTP/1."))?;
    Some((status, text))
}

/// Directories in which a program without a path is searched for, as for units.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs a command. Succeeds if its exit status is 0.
async fn run(argv: &[String]) -> Result<(), String> {
    let (program, arguments) = argv.split_first().ok_or("no command")?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", PATH).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let spawned = command.process_group(0).kill_on_drop(true).spawn();
    let mut child = Group(spawned.map_err(|error| describe(&error))?);
    let mut errors = StderrHead { stderr: child.0.stderr.take(), head: Vec::new() };
    let status = tokio::select! {
        status = child.0.wait() => status,
        () = errors.read() => child.0.wait().await,
    };
    let status = status.map_err(|error| describe(&error))?;
    if status.success() {
        return Ok(());
    }
    // A process that outlives the command may keep its pipe open.
    drop(tokio::time::timeout(STDERR_TIMEOUT, errors.read()).await);
    let mut problem = describe_exit(status);
    let text = String::from_utf8_lossy(&errors.head);
    if let Some(line) = text.lines().map(str::trim).find(|line| !line.is_empty()) {
        problem = format!("{problem}: {line}");
    }
    Err(problem)
}

fn describe_exit(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended with unknown status".to_owned(),
    }
}

/// Time for reading the remaining error output of a command that has ended.
const STDERR_TIMEOUT: Duration = Duration::from_millis(100);

/// The process group of a command. Kills the group when dropped before the command has ended.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // There is no ID once the process has been waited for, so no other group is hit.
        let pid = self.0.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _gone = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// The begin of a command's error output.
struct StderrHead {
    stderr: Option<ChildStderr>,
    head: Vec<u8>,
}

impl StderrHead {
    /// Maximum length, in bytes.
    const MAX: usize = 1024;

    /// Reads until the end, and drops everything beyond the maximum. So a command with much output
    /// does not block.
    async fn read(&mut self) {
        let Some(stderr) = &mut self.stderr else { return };
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            let left = Self::MAX.saturating_sub(self.head.len());
            self.head.extend_from_slice(&buffer[..count.min(left)]);
        }
        self.stderr = None;
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    async fn probe(target: &str, timeout: Duration) -> Result<(), String> {
        let target = target.parse().unwrap_or_else(|error| panic!("{target}: {error}"));
        SystemProber.probe(&target, timeout).await
    }

    /// Sends a response to one request, and returns the request with the result of the check.
    async fn serve(response: &str) -> (String, Result<(), String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
            }
            // Byte by byte, so that the client sees every incomplete response.
            for byte in response.bytes() {
                let _closed = stream.write_all(&[byte]).await;
            }
            String::from_utf8(request).unwrap()
        };
        let target = format!("http://127.0.0.1:{port}/up?a=1");
        let (request, result) = tokio::join!(server, probe(&target, LONG));
        let without_port = |text: String| text.replace(&port.to_string(), "PORT");
        (without_port(request), result.map_err(without_port))
    }

    #[tokio::test]
    async fn http_check_depends_on_the_status() {
        let not_http = Err("the response is not HTTP");
        let cases = [
            ("HTTP/1.1 200 OK\r\n", Ok(())),
            ("HTTP/1.0 204\n", Ok(())),
            ("HTTP/1.1 302 Found\r\nLocation: /a\r\n\r\n", Ok(())),
            ("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Ok(())),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n", Err("503 Service Unavailable")),
            ("HTTP/1.1 404 \r\n", Err("404")),
            ("HTTP/1.1 500 a\u{1b}[31mb\r\n", Err("500 a[31mb")),
            ("220 mail.example.net ESMTP\r\n", not_http),
            ("HTTP/1.1 20 OK\r\n", not_http),
            ("HTTP/1.1 2000 OK\r\n", not_http),
            ("HTTP/1.1 200", Err("the connection was closed before a response")),
        ];
        for (response, expected) in cases {
            let (request, result) = serve(response).await;
            assert!(request.starts_with("GET /up?a=1 HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n"));
            let expected = expected.map_err(|it| format!("GET http://127.0.0.1:PORT/up?a=1: {it}"));
            assert_eq!(result, expected, "{response:?}");
        }
    }

    #[tokio::test]
    async fn connection_checks_name_the_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(probe(&format!("tcp://{address}"), LONG).await, Ok(()));
        // The listener accepts, and never responds.
        let silent = probe(&format!("http://{address}/"), Duration::from_millis(50)).await;
        assert_eq!(silent, Err(format!("GET http://{address}/: no answer within 50ms")));
        drop(listener);
        let refused = probe(&format!("tcp://{address}"), LONG).await;
        assert_eq!(refused, Err(format!("tcp://{address}: connection refused")));
    }

    #[tokio::test]
    async fn command_check_depends_on_the_exit_status() {
        let cases = [
            ("exec:true", Ok(())),
            ("exec:/bin/false", Err("/bin/false: exited with status 1")),
            ("exec:/none secret", Err("/none: entity not found")),
            (
                "exec:sh -c \"echo out; echo 'no table' >&2; echo more >&2; exit 3\"",
                Err("sh: exited with status 3: no table"),
            ),
            // Much output does not block the command.
            ("exec:sh -c \"head -c 1000000 /dev/zero >&2\"", Ok(())),
            // The unit's command sees none of the daemon's variables.
            ("exec:sh -c 'test -z \"$CARGO_MANIFEST_DIR\" && test \"$PWD\" = /'", Ok(())),
            ("exec:sh -c 'kill -9 $$'", Err("sh: ended by signal 9")),
        ];
        for (target, expected) in cases {
            assert_eq!(probe(target, LONG).await, expected.map_err(str::to_owned), "{target}");
        }
    }

    /// The pipe of the inner process would stay open if it outlived the check.
    #[tokio::test]
    async fn timeout_kills_all_processes_of_a_command() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        let mut reader = tokio::net::unix::pipe::OpenOptions::new().open_receiver(&pipe).unwrap();
        let target = format!("exec:sh -c 'exec 3>{}; echo >&3; sleep 1000 & wait'", pipe.display());
        let result = probe(&target, Duration::from_secs(1)).await;
        assert_eq!(result, Err("sh: no answer within 1s".to_owned()));
        let mut written = Vec::new();
        tokio::time::timeout(LONG, reader.read_to_end(&mut written)).await.unwrap().unwrap();
        assert_eq!(written, b"\n");
    }
}
