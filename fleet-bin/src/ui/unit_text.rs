//! Unit files with their drop-ins, as one text.
//!
//! The text of a unit without drop-ins is its file, byte for byte. Otherwise it is the text that
//! `systemctl cat` prints: each file below a comment with its path, and an empty line between two
//! files. For systemd, files in a row have the meaning of a unit file with drop-ins: later options
//! add to earlier ones or replace them, and empty values reset them.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use fleet_unitfile::check::SystemdVersion;
use fleet_unitfile::{
    Diagnostic, Finding as UnitFinding, MergedUnit, UnitFile, UnitName, UnitTree,
};

use super::drop_ins::drop_ins_of;
use super::error::CliError;

/// Largest accepted unit file, in bytes: the limit of the API.
const MAX_BYTES: u64 = 8 << 20;

/// Path that stands for the folder of the unit file while its drop-ins are selected.
const FOLDER: &str = "/etc/systemd/system";

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Path of a unit file, and the origin of each line of the unit's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourcePath {
    main: PathBuf,
    /// All files with the number of lines of the text before them; empty without drop-ins.
    parts: Vec<(usize, PathBuf)>,
}

impl From<PathBuf> for SourcePath {
    fn from(main: PathBuf) -> Self {
        Self { main, parts: Vec::new() }
    }
}

impl From<&str> for SourcePath {
    fn from(main: &str) -> Self {
        PathBuf::from(main).into()
    }
}

impl SourcePath {
    /// Returns the path of the unit file.
    pub(crate) fn main(&self) -> &Path {
        &self.main
    }

    /// Returns the file that contains a line of the text, and the number of the line in that file.
    pub(crate) fn locate(&self, line: usize) -> (PathBuf, usize) {
        match self.parts.iter().rfind(|(before, _)| *before < line) {
            Some((before, path)) => (path.clone(), line - before),
            None => (self.main.clone(), line),
        }
    }

    /// Returns the position of a file among the files of the unit; 0 for any other path.
    pub(crate) fn index_of(&self, path: &Path) -> usize {
        self.parts.iter().position(|(_, part)| part == path).unwrap_or(0)
    }

    /// Whether the text of the unit contains the file.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.main == path || self.parts.iter().any(|(_, part)| part == path)
    }
}

/// The text of a unit, which the cluster stores.
#[derive(Debug, Clone)]
pub(crate) struct UnitText {
    path: SourcePath,
    file: UnitFile,
    /// Diagnostics of each file with their paths. Their lines are those of the file.
    diagnostics: Vec<(PathBuf, Diagnostic)>,
    /// Selected files; `None` without drop-ins.
    merged: Option<MergedUnit>,
}

impl UnitText {
    /// Creates the text of a unit without drop-ins.
    pub(crate) fn single(path: &Path, source: &[u8]) -> Self {
        let (file, diagnostics) = UnitFile::parse_collecting(source);
        let diagnostics = diagnostics.into_iter().map(|it| (path.to_owned(), it)).collect();
        Self { path: path.to_owned().into(), file, diagnostics, merged: None }
    }

    /// Creates the text of a unit from its file, or the file of its template, and the drop-ins
    /// beside that file. As in systemd, an empty file masks the unit, whatever its drop-ins are.
    ///
    /// # Errors
    ///
    /// A drop-in cannot be read, or the text is too long.
    pub(crate) fn read(name: &UnitName, path: &Path, source: &[u8]) -> Result<Self, CliError> {
        let drop_ins = match source.is_empty() {
            true => Vec::new(),
            false => drop_ins_of(name, path)?,
        };
        let text = Self::new(name, path, source, drop_ins);
        if text.file.source().len() as u64 > MAX_BYTES {
            return Err(too_long(&format!("{} with its drop-ins", path.display())));
        }
        Ok(text)
    }

    /// Merges a unit file with drop-ins, each with its path relative to the folder of the unit
    /// file.
    fn new(name: &UnitName, path: &Path, source: &[u8], drop_ins: Vec<(String, Vec<u8>)>) -> Self {
        let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let files = drop_ins.into_iter().chain([(file_name, source.to_vec())]);
        let mut diagnostics = Vec::new();
        let files = files.map(|(relative, source)| {
            let source = source.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&source);
            let (file, of_file) = UnitFile::parse_collecting(source);
            let path = path.with_file_name(&relative);
            diagnostics.extend(of_file.into_iter().map(|it| (path.clone(), it)));
            (format!("{FOLDER}/{relative}"), file)
        });
        let files: Vec<_> = files.collect();
        let merged = UnitTree::new(&[FOLDER], files).unit(name);
        if merged.parts().len() < 2 {
            return Self::single(path, source);
        }
        let relative = |part: &str| part[FOLDER.len() + 1..].to_owned();
        let (mut text, mut starts) = (Vec::new(), Vec::new());
        for part in merged.parts() {
            if !text.is_empty() {
                end_line(&mut text);
                // An empty line also ends an option that continues at the end of a file.
                text.push(b'\n');
            }
            text.extend_from_slice(format!("# {}\n", relative(&part.path)).as_bytes());
            starts.push(text.len());
            text.extend_from_slice(part.file.source());
        }
        end_line(&mut text);
        let (file, _) = UnitFile::parse_collecting(text);
        let parts = merged.parts().iter().zip(starts).map(|(part, start)| {
            let before = file.location(start).line.saturating_sub(1);
            (before, path.with_file_name(relative(&part.path)))
        });
        let path = SourcePath { main: path.to_owned(), parts: parts.collect() };
        diagnostics.retain(|(file, _)| path.contains(file));
        Self { path, file, diagnostics, merged: Some(merged) }
    }

    /// Returns the path of the unit file with the origin of each line.
    pub(crate) fn path(&self) -> &SourcePath {
        &self.path
    }

    /// Returns the text as a unit file.
    pub(crate) fn file(&self) -> &UnitFile {
        &self.file
    }

    /// Returns the diagnostics of all files, each with the path of its file.
    pub(crate) fn diagnostics(&self) -> &[(PathBuf, Diagnostic)] {
        &self.diagnostics
    }

    /// Checks the unit with the rules of systemd. Returns the findings with the paths of their
    /// files.
    pub(crate) fn check_for(
        &self,
        name: &UnitName,
        version: Option<SystemdVersion>,
    ) -> Vec<(PathBuf, UnitFinding)> {
        let Some(merged) = &self.merged else {
            let findings = self.file.check_for(name, version).into_iter();
            return findings.map(|it| (self.path.main.clone(), it)).collect();
        };
        let real = |file: &str| self.path.main.with_file_name(&file[FOLDER.len() + 1..]);
        merged.check_for(version).into_iter().map(|it| (real(it.file()), it)).collect()
    }
}

/// Adds a line feed, unless the text ends in one.
fn end_line(text: &mut Vec<u8>) {
    if text.last() != Some(&b'\n') {
        text.push(b'\n');
    }
}

/// Reads a unit file or drop-in; `None` if it does not exist.
///
/// # Errors
///
/// The file cannot be read, or is too long.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, CliError> {
    let cannot = |error| CliError::failed(format!("cannot read {}", path.display())).because(error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot(error)),
    };
    let mut source = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut source).map_err(cannot)?;
    match source.len() as u64 > MAX_BYTES {
        true => Err(too_long(&path.display().to_string())),
        false => Ok(Some(source)),
    }
}

fn too_long(what: &str) -> CliError {
    CliError::failed(format!("{what} is longer than 8 MiB, the limit of a unit file"))
}

#[cfg(test)]
mod tests {
    use fleet_unitfile::UnitOption;

    use super::*;

    fn text(name: &str, path: &str, files: &[(&str, &str)], source: &str) -> UnitText {
        let drop_ins =
            files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().into()));
        UnitText::new(
            &name.parse().unwrap(),
            Path::new(path),
            source.as_bytes(),
            drop_ins.collect(),
        )
    }

    fn source(text: &UnitText) -> &str {
        text.file().source_str().unwrap()
    }

    #[test]
    fn drop_ins_follow_the_file_as_systemctl_cat_prints_them() {
        let files = [
            ("service.d/all.conf", "[Service]\nNice=1\n"),
            ("web.service.d/20-b.conf", "[Service]\nNice=3"),
            ("web.service.d/10-a.conf", "[Service]\nNice=2\n"),
        ];
        let merged = text("web.service", "u/web.service", &files, "[Service]\nExecStart=/bin/web");
        insta::assert_snapshot!(source(&merged), @r"
        # web.service
        [Service]
        ExecStart=/bin/web

        # web.service.d/10-a.conf
        [Service]
        Nice=2

        # web.service.d/20-b.conf
        [Service]
        Nice=3

        # service.d/all.conf
        [Service]
        Nice=1
        ");
        for (line, path, own) in [
            (1, "u/web.service", 1),
            (2, "u/web.service", 1),
            (3, "u/web.service", 2),
            (6, "u/web.service.d/10-a.conf", 1),
            (11, "u/web.service.d/20-b.conf", 2),
            (15, "u/service.d/all.conf", 2),
        ] {
            assert_eq!(merged.path().locate(line), (path.into(), own), "{line}");
        }
    }

    #[test]
    fn unit_without_drop_ins_stays_byte_exact() {
        for source in ["", "[Service]", "\u{feff}[Service]\r\nNice=1\\"] {
            let empty = ("web.service.d/a.conf", "");
            let others = ("db.service.d/a.conf", "[Service]\nNice=1\n");
            let merged = text("web.service", "web.service", &[empty, others], source);
            assert_eq!(merged.file().source(), source.as_bytes());
            assert_eq!(merged.path().locate(2), ("web.service".into(), 2));
        }
    }

    #[test]
    fn most_specific_drop_in_of_a_name_is_used() {
        let files = [
            ("service.d/a.conf", "[Service]\nNice=1\n"),
            ("web-.service.d/a.conf", "[Service]\nNice=2\n"),
            ("web-front@.service.d/a.conf", "[Service]\nNice=3\n"),
            ("web-front@1.service.d/a.conf", "[Service]\nNice=4\n"),
            ("web-front@1.service.d/masked.conf", ""),
            ("web-front@.service.d/masked.conf", "[Service]\nNice=5\n"),
        ];
        let template = "[Service]\nExecStart=/bin/web\n";
        for (name, expected) in [
            ("web-front@1.service", "4"),
            ("web-front@2.service", "5"),
            ("web-front@.service", "5"),
        ] {
            let merged = text(name, "u/web-front@.service", &files, template);
            assert_eq!(merged.file().get("Service", "Nice"), Some(expected), "{name}");
            assert!(source(&merged).starts_with("# web-front@.service\n"), "{name}");
        }
        let other = text("web-back.service", "web-back.service", &files, template);
        assert_eq!(other.file().get("Service", "Nice"), Some("2"));
    }

    /// Whatever the files end in, the text has the options of the files, and their lines.
    #[test]
    fn end_of_a_file_does_not_change_the_next_one() {
        let ends = [
            "",
            "\n",
            "\\",
            "\\\n",
            "\\\n\\",
            "\\\r\n",
            "\\\r",
            "\r",
            "\n\r",
            "\\\n# comment\\",
            "\0",
            "\\\n\n\n",
            "\n# comment\\",
            "\n;",
            "\\\\",
            " \\ ",
        ];
        for end in ends {
            let main = format!("\u{feff}[Service]\nExecStart=/bin/web{end}");
            let more = format!("\u{feff}[Service]\nEnvironment=A=1{end}");
            let files =
                [("web.service.d/1.conf", &*more), ("web.service.d/2.conf", "[Service]\nNice=7")];
            let merged = text("web.service", "web.service", &files, &main);
            let parts = merged.merged.as_ref().unwrap();
            let expected: Vec<UnitOption> = parts.options().map(|it| it.option.into()).collect();
            let options: Vec<UnitOption> = merged.file().options().map(Into::into).collect();
            assert_eq!(options, expected, "{end:?}");
            assert_eq!(options.len(), 3, "{end:?}");
            let places = parts.options().map(|it| {
                let path = it.path.strip_prefix(FOLDER).unwrap().trim_start_matches('/');
                (PathBuf::from(path), it.option.line())
            });
            let lines = merged.file().options().map(|it| merged.path().locate(it.line()));
            assert!(lines.eq(places), "{end:?}");
        }
    }
}
