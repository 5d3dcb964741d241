//! Pure: an incremental reader of exports. Only the last line, with the checksums, proves that the
//! whole file is valid.

use super::line::{
    ContentDigest, Digest, ExportEnd, ExportHeader, ExportItem, FORMAT, Line, ParsedLine, VERSION,
};

/// Maximum length of a line in bytes. The line of any unit that fits into a store is shorter.
const MAX_LINE: usize = 8 << 20;

/// Error of a file that is not a usable export. The caller must use no data that was read from the
/// file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The file is something else.
    #[error("line 1 is not the header of a fleetctl export")]
    Foreign,
    /// A newer version of fleet wrote the export.
    #[error(
        "the export has format {found}, but this version of fleet reads format {VERSION}: upgrade \
         fleet"
    )]
    Newer {
        /// Format of the file.
        found: u32,
    },
    /// An older version of fleet wrote the export.
    #[error(
        "the export has format {found}, but this version of fleet reads format {VERSION}: export \
         the cluster again with this version"
    )]
    Older {
        /// Format of the file.
        found: u32,
    },
    /// A line is invalid.
    #[error("line {line}: {problem}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// Problem with the line.
        problem: String,
    },
    /// The last line is missing.
    #[error("the export is cut off after line {line}: its last line is missing")]
    CutOff {
        /// Last line that is present.
        line: u64,
    },
    /// The lines were changed.
    #[error(
        "line {line}: the checksum does not match the lines above: the file was changed after the \
         export"
    )]
    Checksum {
        /// Number of the last line.
        line: u64,
    },
}

/// Reads an export in pieces, and buffers at most one line.
#[derive(Debug, Default)]
pub struct ExportReader {
    /// Beginning of an incomplete line.
    partial: Vec<u8>,
    /// Number of lines read.
    line: u64,
    header: Option<ExportHeader>,
    end: Option<ExportEnd>,
    /// Sort key of the last item; the next one must follow it.
    last: Option<SortKey>,
    counts: [u64; 4],
    digest: Digest,
    content: ContentDigest,
}

/// Position of an item in the order of an export.
type SortKey = (u8, String, String);

impl ExportReader {
    /// Creates a reader.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether a file that begins with these bytes is an export.
    #[must_use]
    pub fn is_export(beginning: &[u8]) -> bool {
        beginning.starts_with(br#"{"kind":"#)
    }

    /// Reads the next bytes of the file, and passes each complete item to `take` with its line
    /// number.
    ///
    /// # Errors
    ///
    /// [`ExportError`] when the bytes are not part of a valid export. Then no part of the file can
    /// be used, including the items that `take` got before.
    pub fn push(
        &mut self,
        bytes: &[u8],
        take: &mut dyn FnMut(ExportItem, u64),
    ) -> Result<(), ExportError> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end + 1);
            self.partial.extend_from_slice(line);
            let line = std::mem::take(&mut self.partial);
            self.take_line(&line, take)?;
            rest = after;
        }
        self.partial.extend_from_slice(rest);
        if self.partial.len() > MAX_LINE {
            self.line += 1;
            return Err(self.wrong(format!("the line is longer than {} MiB", MAX_LINE >> 20)));
        }
        Ok(())
    }

    /// Returns the header and the end of the export. Call this after passing the whole file to
    /// [`push`](Self::push).
    ///
    /// # Errors
    ///
    /// [`ExportError::CutOff`] when the export is incomplete.
    pub fn finish(mut self) -> Result<(ExportHeader, ExportEnd), ExportError> {
        if self.line == 0 && self.partial.is_empty() {
            return Err(ExportError::CutOff { line: 0 });
        }
        if self.end.is_some() && !self.partial.is_empty() {
            self.line += 1;
            return Err(self.wrong("there is data after the end".to_owned()));
        }
        match (self.header, self.end) {
            (Some(header), Some(end)) => Ok((header, end)),
            _ => Err(ExportError::CutOff { line: self.line }),
        }
    }

    fn take_line(
        &mut self,
        bytes: &[u8],
        take: &mut dyn FnMut(ExportItem, u64),
    ) -> Result<(), ExportError> {
        self.line += 1;
        if self.end.is_some() {
            return Err(self.wrong("there is data after the end".to_owned()));
        }
        if self.header.is_none() {
            check_format(bytes)?;
        }
        let line: Line = serde_json::from_slice(bytes).map_err(|error| self.bad_json(&error))?;
        match line.read().map_err(|problem| self.wrong(problem))? {
            ParsedLine::Header(_) if self.header.is_some() => {
                return Err(self.wrong("there is a second header".to_owned()));
            }
            ParsedLine::Header(header) => self.header = Some(header),
            ParsedLine::Item(item) => {
                self.note(&item)?;
                take(item, self.line);
            }
            ParsedLine::End(end) => return self.close(end),
        }
        self.digest.update(bytes);
        Ok(())
    }

    /// Counts an item and checks that it follows the previous one in order.
    fn note(&mut self, item: &ExportItem) -> Result<(), ExportError> {
        let key = match item {
            ExportItem::Metadata(it) => {
                self.content.metadata(it.machine.as_str(), &it.key, &it.value);
                (0, it.machine.to_string(), it.key.clone())
            }
            ExportItem::Intent(it) => {
                self.content.intent(it.machine.as_str(), it.intent);
                (1, it.machine.to_string(), String::new())
            }
            ExportItem::Unit(unit) => {
                self.content.unit(unit.name.as_str(), unit.desired, &unit.source);
                (2, unit.name.to_string(), String::new())
            }
            ExportItem::Fault { unit, .. } => (3, unit.to_string(), String::new()),
        };
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            return Err(self.wrong(format!("{} is duplicated or out of order", key.1)));
        }
        self.counts[usize::from(key.0)] += 1;
        self.last = Some(key);
        Ok(())
    }

    fn close(&mut self, end: ExportEnd) -> Result<(), ExportError> {
        let sha256 = std::mem::take(&mut self.digest).finish();
        let content = std::mem::take(&mut self.content).finish();
        if sha256 != end.sha256 || content != end.content {
            return Err(ExportError::Checksum { line: self.line });
        }
        let header_units = self.header.as_ref().map(|header| header.units);
        let announced = [end.metadata, end.intents, end.units, end.faults];
        if self.counts != announced || header_units != Some(end.units) {
            return Err(
                self.wrong("the counts on this line do not match the lines above".to_owned())
            );
        }
        self.end = Some(end);
        Ok(())
    }

    fn wrong(&self, problem: String) -> ExportError {
        ExportError::Line { line: self.line, problem }
    }

    fn bad_json(&self, error: &serde_json::Error) -> ExportError {
        let text = error.to_string();
        let problem = text.split(" at line ").next().unwrap_or_default();
        // serde_json counts lines itself. For a whole line it reports the end as line 2.
        self.wrong(match error.line() {
            1 => format!("column {}: {problem}", error.column()),
            _ => problem.to_owned(),
        })
    }
}

/// Checks the format before the line is decoded, because the first line of another format may have
/// no other fields in common.
fn check_format(bytes: &[u8]) -> Result<(), ExportError> {
    #[derive(serde::Deserialize)]
    struct Probe {
        kind: String,
        format: String,
        version: u32,
    }
    match serde_json::from_slice::<Probe>(bytes) {
        Ok(probe) if probe.kind != "header" || probe.format != FORMAT => Err(ExportError::Foreign),
        Ok(probe) if probe.version > VERSION => Err(ExportError::Newer { found: probe.version }),
        Ok(probe) if probe.version < VERSION => Err(ExportError::Older { found: probe.version }),
        Ok(_) => Ok(()),
        Err(_) => Err(ExportError::Foreign),
    }
}
