//! A headless Chromium, driven through the WebDriver protocol of chromedriver.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest time to wait for a condition, far longer than any should take.
const DEADLINE: Duration = Duration::from_secs(30);

/// Keys with a name, as WebDriver encodes them.
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const ESCAPE: &str = "\u{e00c}";
pub(crate) const DOWN: &str = "\u{e015}";

/// A browser with one window. Dropping it ends the browser.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser with a window of this size, in CSS pixels.
    pub(crate) fn start(width: u32, height: u32) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("there is chromedriver");
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let started = lines.find_map(|line| {
            line.unwrap().split_once("started successfully on port ")?.1[..]
                .split('.')
                .next()?
                .parse()
                .ok()
        });
        let port = started.expect("chromedriver prints its port");
        // Its later output must not block it.
        thread::spawn(move || lines.for_each(drop));
        let user_data = format!("--user-data-dir={}", profile.path().display());
        let size = format!("--window-size={width},{height}");
        let arguments = ["--headless=new", "--no-sandbox", "--hide-scrollbars", &size, &user_data];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let mut browser = Self { driver, port, session: String::new(), _profile: profile };
        let session = browser.request("POST", "/session", &capabilities);
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    /// Sends a command to chromedriver. Returns its value; panics with the message of an error.
    fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let answer: Value = serde_json::from_slice(&read_body(stream)).unwrap();
        let value = answer["value"].clone();
        assert!(value.get("error").is_none(), "{method} {path}: {value:#}");
        value
    }

    fn command(&self, path: &str, body: &Value) -> Value {
        self.request("POST", &format!("/session/{}/{path}", self.session), body)
    }

    /// Opens a page, and waits until it is loaded.
    pub(crate) fn open(&self, url: &str) {
        self.command("url", &json!({"url": url}));
    }

    /// Runs the body of a function in the page. Returns its result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Runs an asynchronous function, whose last argument is a callback for its result.
    pub(crate) fn run_async(&self, script: &str) -> Value {
        self.command("execute/async", &json!({"script": script, "args": []}))
    }

    /// Calls a method of the protocol of Chromium's developer tools.
    pub(crate) fn devtools(&self, method: &str, parameters: &Value) -> Value {
        self.command("goog/cdp/execute", &json!({"cmd": method, "params": parameters}))
    }

    /// Sets the colour scheme that the user prefers.
    pub(crate) fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    /// Emulates the screen of a phone.
    pub(crate) fn become_phone(&self, width: u32, height: u32) {
        let screen = json!({
            "width": width, "height": height, "deviceScaleFactor": 1.5, "mobile": true,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", &screen);
    }

    /// Presses keys one after another, wherever the focus is.
    pub(crate) fn press(&self, keys: &str) {
        let down_and_up = keys.chars().flat_map(|key| {
            ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()}))
        });
        let actions: Vec<Value> = down_and_up.collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": actions});
        self.command("actions", &json!({"actions": [keyboard]}));
    }

    /// Presses Tab until the focus is on an element that matches the selector.
    pub(crate) fn tab_to(&self, selector: &str) {
        for _ in 0..200 {
            let matches = format!("return document.activeElement.matches({selector:?})");
            if self.run(&matches) == true {
                return;
            }
            self.press(TAB);
        }
        panic!("Tab does not reach {selector}");
    }

    /// Clicks the first element that matches the selector.
    pub(crate) fn click(&self, selector: &str) {
        self.run(&format!("document.querySelector({selector:?}).click()"));
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&self, expression: &str) -> Value {
        let script = format!("return {expression}");
        let deadline = Instant::now() + DEADLINE;
        loop {
            let value = self.run(&script);
            if !matches!(value, Value::Null | Value::Bool(false)) && value != 0 && value != "" {
                return value;
            }
            if Instant::now() > deadline {
                let text = self.run("return location.href + '\\n' + document.body.innerText");
                panic!("not true: {expression}\n{}", text.as_str().unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until an element's text contains a text.
    pub(crate) fn wait_text(&self, selector: &str, text: &str) {
        self.wait_for(&format!(
            "document.querySelector({selector:?})?.innerText.includes({text:?})"
        ));
    }

    /// Returns what the console of the page has printed since the last call.
    pub(crate) fn console(&self) -> Vec<String> {
        let entries = self.command("se/log", &json!({"type": "browser"}));
        let message = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        entries.as_array().into_iter().flatten().map(message).collect()
    }

    /// Takes a picture of the visible part of the page, as the base64 of a PNG file.
    pub(crate) fn picture(&self) -> String {
        let path = format!("/session/{}/screenshot", self.session);
        self.request("GET", &path, &json!({})).as_str().unwrap().to_owned()
    }
}

/// Reads the body of a response. chromedriver keeps the connection open after it.
fn read_body(stream: TcpStream) -> Vec<u8> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the response has no body");
        let field = line.to_ascii_lowercase();
        match field.trim().strip_prefix("content-length:") {
            Some(number) => length = number.trim().parse().unwrap(),
            None if field.trim().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    body
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !thread::panicking() {
            let path = format!("/session/{}", self.session);
            self.request("DELETE", &path, &json!({}));
        }
        // An ended driver ends its browser.
        drop(self.driver.kill());
        drop(self.driver.wait());
    }
}
