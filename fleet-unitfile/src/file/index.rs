//! Index of the options or headers of a source. It takes about two bytes of memory for each entry.

/// The offsets of options or headers, in source order.
///
/// If backslashes continue an option or header over several lines, its joined text is stored as
/// well.
#[derive(Debug, Default)]
pub(crate) struct Index {
    chunks: Vec<Chunk>,
    len: usize,
}

/// An option or a header in a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// Offset in the source.
    pub(crate) start: usize,
    /// The joined text, if the text does not appear literally in the source.
    pub(crate) joined: Option<&'a str>,
}

/// Entries that begin within the same 64 KiB of the source, so that 16 bits are enough for each
/// offset in `starts`.
///
/// `texts` holds the joined texts of these entries, one after the other. A joined text is never
/// longer than its source text, so 16 bits are also enough for each offset in `texts`.
#[derive(Debug)]
struct Chunk {
    /// Number of entries in the chunks before this one.
    before: usize,
    /// Offset in the source of the first entry.
    base: usize,
    starts: Vec<u16>,
    joined: Vec<JoinedAt>,
    texts: String,
}

/// A joined entry: its index in the chunk, and the offset of its text in `texts`.
#[derive(Debug)]
struct JoinedAt {
    entry: u16,
    text: u16,
}

impl Index {
    /// Appends the entry that begins at `start`. If backslashes continue the entry, `joined`
    /// contains the pieces of its joined text.
    pub(crate) fn push(&mut self, start: usize, joined: Option<&[&str]>) {
        let last = self.chunks.last_mut();
        let added = last.is_some_and(|chunk| chunk.push(start, joined).is_some());
        if !added {
            self.close();
            let mut chunk = Chunk::new(self.len, start);
            chunk.push(start, joined);
            self.chunks.push(chunk);
        }
        self.len += 1;
    }

    /// Releases spare capacity of the last chunk.
    pub(crate) fn close(&mut self) {
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.starts.shrink_to_fit();
            chunk.joined.shrink_to_fit();
            chunk.texts.shrink_to_fit();
        }
    }

    /// Returns the number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the entry at an index.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<Entry<'_>> {
        let chunk = before(&self.chunks, |chunk| chunk.before <= index)?;
        chunk.get(index - chunk.before)
    }

    /// Returns the number of entries that begin before an offset of the source.
    pub(crate) fn count_before(&self, offset: usize) -> usize {
        let Some(chunk) = before(&self.chunks, |chunk| chunk.base < offset) else { return 0 };
        let is_before = |start: &u16| chunk.base + usize::from(*start) < offset;
        chunk.before + chunk.starts.partition_point(is_before)
    }

    /// Returns the last entry that begins before an offset of the source.
    #[inline]
    pub(crate) fn last_before(&self, offset: usize) -> Option<Entry<'_>> {
        let chunk = before(&self.chunks, |chunk| chunk.base < offset)?;
        let count = chunk.starts.partition_point(|&start| chunk.base + usize::from(start) < offset);
        chunk.get(count.checked_sub(1)?)
    }
}

impl Chunk {
    fn new(before: usize, base: usize) -> Self {
        Self { before, base, starts: Vec::new(), joined: Vec::new(), texts: String::new() }
    }

    /// Appends an entry; `None` if it begins too far from the first.
    fn push(&mut self, start: usize, joined: Option<&[&str]>) -> Option<()> {
        let offset = u16::try_from(start - self.base).ok()?;
        if let Some(pieces) = joined {
            let entry = u16::try_from(self.starts.len()).ok()?;
            let text = u16::try_from(self.texts.len()).ok()?;
            self.joined.push(JoinedAt { entry, text });
            self.add_text(pieces);
        }
        self.starts.push(offset);
        Some(())
    }

    fn add_text(&mut self, pieces: &[&str]) {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        if len > self.texts.len() {
            // A text can be as long as a line, and may be the last of its chunk.
            self.texts.reserve_exact(len);
        }
        self.texts.extend(pieces.iter().copied());
    }

    #[inline]
    fn get(&self, index: usize) -> Option<Entry<'_>> {
        let start = self.base + usize::from(*self.starts.get(index)?);
        Some(Entry { start, joined: self.text(index) })
    }

    #[inline]
    fn text(&self, index: usize) -> Option<&str> {
        let found = self.joined.binary_search_by_key(&index, |it| usize::from(it.entry)).ok()?;
        let end = self.joined.get(found + 1).map_or(self.texts.len(), |next| next.text.into());
        Some(&self.texts[usize::from(self.joined[found].text)..end])
    }
}

/// Returns the last chunk for which `is_before` is true, by binary search. `is_before` must be true
/// for all chunks up to some position, and false for all later chunks.
#[inline]
fn before(chunks: &[Chunk], is_before: impl Fn(&Chunk) -> bool) -> Option<&Chunk> {
    chunks.get(chunks.partition_point(is_before).checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates entries as distances from the entry before, some with a joined text.
    fn entries() -> impl Strategy<Value = Vec<(usize, Option<String>)>> {
        let distance = prop_oneof![3..9_usize, 3..9_usize, 60_000..70_000_usize];
        let text = proptest::option::of("[a-z]{0,2}=");
        proptest::collection::vec((distance, text), 0..60)
    }

    proptest! {
        #[test]
        fn index_agrees_with_a_list(entries in entries()) {
            let (mut index, mut list, mut at) = (Index::default(), Vec::new(), 0);
            for (distance, text) in &entries {
                at += distance;
                let pieces = text.as_ref().map(|text| [text.as_str(), "v"]);
                index.push(at, pieces.as_ref().map(|pieces| &pieces[..]));
                list.push((at, pieces.map(|pieces| pieces.concat())));
            }
            index.close();
            let expected: Vec<_> = list
                .iter()
                .map(|(start, joined)| Entry { start: *start, joined: joined.as_deref() })
                .collect();
            prop_assert_eq!(index.len(), expected.len());
            for (place, entry) in expected.iter().enumerate() {
                prop_assert_eq!(index.get(place), Some(*entry));
                prop_assert_eq!(index.last_before(entry.start + 1), Some(*entry));
                let previous = place.checked_sub(1).map(|place| expected[place]);
                prop_assert_eq!(index.last_before(entry.start), previous);
            }
            prop_assert_eq!(index.get(expected.len()), None);
        }
    }
}
