//! The text that the options of one source share, and where each of them stands in it.

use crate::diagnostic::Span;

/// A source with what does not stand in it as it reads: joined values, and texts of their own.
#[derive(Debug, Default)]
pub(crate) struct Text {
    pub(crate) source: Source,
    /// The names of the sections in the order of their first headers.
    pub(crate) sections: Vec<Box<str>>,
    /// Names, values and values as they are written, one after the other.
    pub(crate) stored: String,
    pub(crate) places: Vec<Stored>,
}

/// A source byte for byte.
#[derive(Debug)]
pub(crate) enum Source {
    /// All of it is UTF-8, so that options can be parts of it.
    Text(Box<str>),
    /// Some comment is not.
    Bytes(Box<[u8]>),
}

impl Default for Source {
    fn default() -> Self {
        Self::Bytes(Box::default())
    }
}

impl Source {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bytes(_) => None,
        }
    }
}

/// An option whose parts are kept outside of the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    start: usize,
    name_len: usize,
    value_len: usize,
    /// The value as it is written, where that differs from how it reads.
    verbatim_len: Option<usize>,
    value_start: usize,
}

/// Where one option stands, as small as it can be said: a file has many options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The offset of the name in the source, and that of the end of the value.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) section: usize,
    pub(crate) parts: Parts,
}

/// Where the name and the value of an option are to be found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parts {
    /// In the source; the name is shorter than a line may be, so its length fits.
    InSource { name_len: u32, value_start: usize },
    /// Outside of it: the index in [`Text::places`].
    Stored(usize),
}

impl Text {
    /// Keeps the parts of an option, whose value begins at the given offset of the source.
    pub(crate) fn store(
        &mut self,
        name: &str,
        value: &str,
        verbatim: Option<&str>,
        value_start: usize,
    ) -> Parts {
        let start = self.stored.len();
        for part in [name, value, verbatim.unwrap_or_default()] {
            self.stored.push_str(part);
        }
        self.places.push(Stored {
            start,
            name_len: name.len(),
            value_len: value.len(),
            verbatim_len: verbatim.map(str::len),
            value_start,
        });
        Parts::Stored(self.places.len() - 1)
    }

    pub(crate) fn name(&self, place: &Place) -> &str {
        match place.parts {
            Parts::InSource { name_len, .. } => {
                let end = place.start + usize::try_from(name_len).expect("32 bits fit a usize");
                self.slice(place.start, end)
            }
            Parts::Stored(index) => {
                let stored = &self.places[index];
                &self.stored[stored.start..][..stored.name_len]
            }
        }
    }

    pub(crate) fn value(&self, place: &Place) -> &str {
        match place.parts {
            Parts::InSource { value_start, .. } => self.slice(value_start, place.end),
            Parts::Stored(index) => {
                let stored = &self.places[index];
                &self.stored[stored.start + stored.name_len..][..stored.value_len]
            }
        }
    }

    pub(crate) fn verbatim(&self, place: &Place) -> &str {
        let Parts::Stored(index) = place.parts else {
            return self.value(place);
        };
        let stored = &self.places[index];
        let start = stored.start + stored.name_len + stored.value_len;
        match stored.verbatim_len {
            Some(len) => &self.stored[start..][..len],
            None => self.value(place),
        }
    }

    pub(crate) fn value_span(&self, place: &Place) -> Span {
        let start = match place.parts {
            Parts::InSource { value_start, .. } => value_start,
            Parts::Stored(index) => self.places[index].value_start,
        };
        Span { start, end: place.end }
    }

    fn slice(&self, start: usize, end: usize) -> &str {
        let text = self.source.as_text();
        &text.expect("options stand in sources that are text")[start..end]
    }
}
