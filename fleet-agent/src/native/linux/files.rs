//! Files that a unit file names: they are opened without blocking, environment files are parsed
//! like by systemd's `parse_env_file_internal`, and changes are reported by inotify.

use std::ffi::CString;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::task::{Context, Poll};

use rustix::fs::inotify::WatchFlags;
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, fcntl_getfl, fcntl_setfl, inotify, openat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use crate::async_fd::{poll_next, read_next, register_readable};

/// State of the parser before the next character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParseState {
    Outside,
    Name,
    /// Before a value, or right after a closing quote in it.
    BeforeValue,
    /// In an unquoted part of a value. Quotes are ordinary characters here.
    Value,
    Escape,
    InSingle,
    InDouble,
    EscapeInDouble,
    Comment,
    EscapeInComment,
}

/// Parser with the text read so far.
struct EnvFileParser {
    at: ParseState,
    name: String,
    value: String,
    /// Start of trailing blanks of the value, which are dropped.
    blanks: Option<usize>,
    variables: Vec<(String, String)>,
}

/// Parses an environment file of `NAME=value` lines. The file may contain comments with `#` and
/// `;`, quoted values that span lines, and backslash escapes. Quotes are special only at the start
/// of a value, or right after another quoted part. Lines without an assignment are skipped.
pub(crate) fn parse_file(text: &str) -> Vec<(String, String)> {
    let mut reader = EnvFileParser {
        at: ParseState::Outside,
        name: String::new(),
        value: String::new(),
        blanks: None,
        variables: Vec::new(),
    };
    for character in text.chars() {
        reader.at = reader.take(character);
    }
    match reader.at {
        ParseState::Outside
        | ParseState::Name
        | ParseState::Comment
        | ParseState::EscapeInComment => {}
        _ => drop(reader.end_variable()),
    }
    reader.variables
}

impl EnvFileParser {
    /// Processes a character; returns the next state.
    fn take(&mut self, character: char) -> ParseState {
        match (self.at, character) {
            (ParseState::Outside, '#' | ';') => ParseState::Comment,
            (ParseState::Outside, blank) if is_blank(blank) => ParseState::Outside,
            (ParseState::Outside, _) => put(&mut self.name, character, ParseState::Name),
            (ParseState::Name, '\n' | '\r') => self.skip(),
            (ParseState::Name, '=') => ParseState::BeforeValue,
            (ParseState::Name, _) => put(&mut self.name, character, ParseState::Name),
            (ParseState::BeforeValue | ParseState::Value, '\n' | '\r') => self.end_variable(),
            (ParseState::BeforeValue, '\'') => ParseState::InSingle,
            (ParseState::BeforeValue, '"') => ParseState::InDouble,
            (ParseState::BeforeValue, blank) if is_blank(blank) => ParseState::BeforeValue,
            (ParseState::BeforeValue | ParseState::Value, '\\') => {
                self.blanks = None;
                ParseState::Escape
            }
            (ParseState::BeforeValue | ParseState::Value, _) => self.take_plain(character),
            (ParseState::Escape, '\n' | '\r') => ParseState::Value,
            (ParseState::Escape, _) => put(&mut self.value, character, ParseState::Value),
            (ParseState::InSingle, '\'') | (ParseState::InDouble, '"') => ParseState::BeforeValue,
            (ParseState::InDouble, '\\') => ParseState::EscapeInDouble,
            (ParseState::InSingle | ParseState::InDouble, _) => {
                put(&mut self.value, character, self.at)
            }
            (ParseState::EscapeInDouble, _) => self.take_escaped(character),
            (ParseState::Comment, '\\') => ParseState::EscapeInComment,
            (ParseState::Comment, '\n' | '\r') => ParseState::Outside,
            (ParseState::Comment | ParseState::EscapeInComment, _) => ParseState::Comment,
        }
    }

    /// Appends a literal character to the value.
    fn take_plain(&mut self, character: char) -> ParseState {
        self.blanks = is_blank(character).then(|| self.blanks.unwrap_or(self.value.len()));
        put(&mut self.value, character, ParseState::Value)
    }

    /// In double quotes a backslash joins lines, and escapes only a few characters.
    fn take_escaped(&mut self, character: char) -> ParseState {
        match character {
            '\n' => return ParseState::InDouble,
            '"' | '\\' | '`' | '$' => {}
            _ => self.value.push('\\'),
        }
        put(&mut self.value, character, ParseState::InDouble)
    }

    fn end_variable(&mut self) -> ParseState {
        let mut value = std::mem::take(&mut self.value);
        value.truncate(self.blanks.take().unwrap_or(value.len()));
        let name = self.name.trim_end_matches(is_blank);
        if is_variable(name) {
            self.variables.push((name.to_owned(), value));
        }
        self.skip()
    }

    fn skip(&mut self) -> ParseState {
        self.name.clear();
        ParseState::Outside
    }
}

fn put(text: &mut String, character: char, then: ParseState) -> ParseState {
    text.push(character);
    then
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r')
}

/// Whether the text is a valid variable name.
fn is_variable(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Opens a file without blocking. Reads and writes of the opened file block as usual.
///
/// Opening a FIFO blocks until its other end is open, opening a device may block, and some files
/// have no end. If a unit file names such a file, only its own unit may be affected.
///
/// # Errors
///
/// Fails like any open. In addition, fails for a FIFO that is opened for writing and has no reader.
pub(crate) fn open_nonblocking(mut options: OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(flags()).open(path)?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Opens a file for writing without blocking. If the file is missing, creates it with the
/// permissions `mode`, regardless of the umask of this process.
///
/// # Errors
///
/// Fails like [`open_nonblocking`].
pub(crate) fn open_or_create(mut options: OpenOptions, path: &Path, mode: u32) -> io::Result<File> {
    let mut create_new = options.clone();
    match open_nonblocking(create_new.create_new(true).mode(mode).clone(), path) {
        // A dangling symlink exists too, and its target is created.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            open_nonblocking(options.create(true).mode(mode).clone(), path)
        }
        made => {
            let made = made?;
            if made.metadata()?.permissions().mode() & 0o777 != mode {
                // File systems without permissions refuse it.
                drop(made.set_permissions(Permissions::from_mode(mode)));
            }
            Ok(made)
        }
    }
}

/// Reads a text of at most `longest` bytes from a regular file.
///
/// # Errors
///
/// The file cannot be read, is not a regular file, is longer than `longest`, or is not UTF-8.
pub(crate) fn read_text(path: &Path, longest: u64) -> io::Result<String> {
    let file = OpenOptions::new().read(true).custom_flags(flags()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = String::new();
    // Files generated by the kernel are regular too, and have no length before they are read.
    if file.take(longest + 1).read_to_string(&mut text)? as u64 > longest {
        return Err(io::Error::other(format!("longer than {longest} bytes")));
    }
    Ok(text)
}

fn flags() -> i32 {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    i32::try_from(flags.bits()).unwrap_or(0)
}

/// Watches files and directories.
#[derive(Debug)]
pub(crate) struct FileWatch {
    descriptor: AsyncFd<OwnedFd>,
}

impl FileWatch {
    /// Creates a watch without any paths.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        Ok(Self { descriptor: register_readable(inotify::init(flags)?)? })
    }

    /// Creates a watch for writes to this file.
    pub(crate) fn of_file(path: &Path) -> io::Result<Self> {
        let changes = Self::new()?;
        changes.watch(path, WatchFlags::MODIFY)?;
        Ok(changes)
    }

    /// Adds these events at this path.
    pub(crate) fn watch(&self, path: &Path, events: WatchFlags) -> rustix::io::Result<()> {
        inotify::add_watch(self.descriptor.get_ref(), path, events).map(drop)
    }

    /// Returns once an event has arrived. Cancel-safe.
    pub(crate) async fn next(&self) -> io::Result<()> {
        read_next(&self.descriptor, take).await
    }

    /// Like [`next`](Self::next).
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_next(&self.descriptor, take, cx)
    }
}

/// Discards the pending events. The buffer exists only during the call, because a permanent buffer
/// would be needed for each running unit.
fn take(descriptor: &OwnedFd) -> io::Result<()> {
    let mut events = [0; 4096];
    Ok(rustix::io::read(descriptor, &mut events).map(drop)?)
}

/// Removes a directory with everything in it, however deep. Symbolic links are not followed.
///
/// A directory in another one is moved to the top before it is emptied. So neither the stack nor
/// the number of open descriptors grows with the depth.
///
/// # Errors
///
/// Returns an error if something cannot be removed, or if `path` is no directory.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let top = openat(CWD, path, DIRECTORY, Mode::empty())?;
    let mut waiting = left_in(&top)?;
    let mut moved: u64 = 0;
    while let Some(name) = waiting.pop() {
        let directory = openat(&top, &name, DIRECTORY, Mode::empty())?;
        for inner in left_in(&directory)? {
            let target = loop {
                moved += 1;
                let target = CString::new(format!(".removed-{moved}"))?;
                match renameat_with(&directory, &inner, &top, &target, RenameFlags::NOREPLACE) {
                    Err(Errno::EXIST) => {}
                    renamed => break renamed.map(|()| target)?,
                }
            };
            waiting.push(target);
        }
        unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
    }
    std::fs::remove_dir(path)
}

/// Removes what a directory contains, except for directories that are not empty. Returns those.
fn left_in(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut left = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let removed = match unlinkat(directory, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => unlinkat(directory, name, AtFlags::REMOVEDIR),
            removed => removed,
        };
        match removed {
            Err(Errno::NOTEMPTY | Errno::EXIST) => left.push(name.to_owned()),
            removed => removed?,
        }
    }
    Ok(left)
}

/// Flags to open a directory itself, and not the one to which a link leads.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rustix::fs::{FileType, mkdirat, mknodat};

    use super::*;

    /// Environment files with the variables that systemd 252 also reads from them.
    const FILES: [(&str, &[(&str, &str)]); 22] = [
        ("A=1\nB=two words  \n", &[("A", "1"), ("B", "two words")]),
        ("# A=1\n ; B=2\n\n  C = 3 ", &[("C", "3")]),
        ("A='x  $B' \nB=\"l1\nl2\"\n", &[("A", "x  $B"), ("B", "l1\nl2")]),
        ("A=a\\\nb\nB=\"\\$x \\n\"", &[("A", "ab"), ("B", "$x \\n")]),
        ("nonsense\nA=\n1B=x\nB==\n", &[("A", ""), ("B", "=")]),
        ("A=\\ x\\ ", &[("A", " x ")]),
        ("A={\"a\":\"b c\"}\nB=1", &[("A", "{\"a\":\"b c\"}"), ("B", "1")]),
        ("A=it's fine\nB=1\n", &[("A", "it's fine"), ("B", "1")]),
        ("A=--log tag=\"x y\" -v", &[("A", "--log tag=\"x y\" -v")]),
        ("A=\"one\" two\nB=1", &[("A", "onetwo"), ("B", "1")]),
        ("A=\"one\" 'two'  \"three\" \n", &[("A", "onetwothree")]),
        ("A=\"one\" t\"wo\" \n", &[("A", "onet\"wo\"")]),
        ("A=' x ' \nB=\" y", &[("A", " x "), ("B", " y")]),
        ("A='x\\'y\n", &[("A", "x\\y")]),
        ("A=\\'x'\nB=1", &[("A", "'x'"), ("B", "1")]),
        ("A=x \\\n y\n", &[("A", "x  y")]),
        ("A=x\\", &[("A", "x")]),
        ("A=\"x\\\ny\"", &[("A", "xy")]),
        ("A=1\r\nB=2\rC=3\r\n", &[("A", "1"), ("B", "2"), ("C", "3")]),
        ("# on \\\nA=1\nB=2", &[("B", "2")]),
        ("A=1 # x\nB=#x", &[("A", "1 # x"), ("B", "#x")]),
        ("export A=1\nA\n=x\nB \t=2\nC=\u{a0}", &[("B", "2"), ("C", "\u{a0}")]),
    ];

    /// Regression: the standard library needs the stack, and a descriptor, for each level.
    #[test]
    fn deep_tree_is_removed() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = home.path().join("top");
        std::fs::create_dir(&path).expect("it can be created");
        let mut at = openat(CWD, &path, DIRECTORY, Mode::empty()).expect("it exists");
        for level in 0..10_000 {
            if level % 1000 == 0 {
                for name in ["file", ".removed-7"] {
                    openat(&at, name, OFlags::CREATE, Mode::RUSR).expect("it can be created");
                }
                mkdirat(&at, "other", Mode::RWXU).expect("it can be created");
            }
            mkdirat(&at, "d", Mode::RWXU).expect("it can be created");
            at = openat(&at, "d", DIRECTORY, Mode::empty()).expect("it exists");
        }
        std::os::unix::fs::symlink("/", path.join("link")).expect("it can be created");
        remove_tree(&path).expect("it can be removed");
        assert!(!path.exists());
    }

    #[test]
    fn environment_files_parse_like_systemd() {
        for (text, expected) in FILES {
            let expected: Vec<_> =
                expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            assert_eq!(parse_file(text), expected, "{text:?}");
        }
    }

    #[test]
    fn fifo_open_does_not_block() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = home.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it can be created");
        read_text(&path, 100).expect_err("it is no file");
        let options = || OpenOptions::new().write(true).clone();
        open_nonblocking(options(), &path).expect_err("it has no reader");
        let mut reader = OpenOptions::new();
        let mut reader = reader.read(true).custom_flags(flags()).open(&path).expect("at once");
        let mut writer = open_nonblocking(options(), &path).expect("the reader exists");
        assert!(!fcntl_getfl(&writer).expect("it has flags").contains(OFlags::NONBLOCK));
        writer.write_all(b"text").expect("it can be written to");
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("it can be read");
        assert_eq!(text, "text");
    }

    #[test]
    fn created_file_ignores_own_umask() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = |name: &str| home.path().join(name);
        let options = || OpenOptions::new().append(true).clone();
        let mode = |file: File| file.metadata().expect("it is open").permissions().mode() & 0o777;
        for made in [0o666, 0o600, 0o640] {
            let name = path(&made.to_string());
            assert_eq!(mode(open_or_create(options(), &name, made).expect("it is created")), made);
            // It keeps them from then on.
            assert_eq!(mode(open_or_create(options(), &name, 0o622).expect("it is there")), made);
        }
        std::os::unix::fs::symlink(path("new"), path("link")).expect("it can be created");
        open_or_create(options(), &path("link"), 0o600).expect("the target of the link is created");
        assert_eq!(mode(File::open(path("new")).expect("it is there")), 0o600);
    }

    #[test]
    fn endless_file_is_refused() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = home.path().join("text");
        std::fs::write(&path, "four").expect("it can be written");
        assert_eq!(read_text(&path, 4).expect("it is as long as it may be"), "four");
        read_text(&path, 3).expect_err("it is longer");
        read_text(Path::new("/dev/zero"), 3).expect_err("it is no file");
    }
}
