//! The options of a unit file, in order.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::Range;

use crate::index::Entry;
use crate::option::OptionView;
use crate::text::Text;

/// An iterator over the options of a [`UnitFile`](crate::UnitFile), in source order.
///
/// Each option is parsed from the source only when the iterator reaches it. [`get`](Self::get)
/// gives access by index.
///
/// ```
/// use fleet_unitfile::UnitFile;
///
/// let unit = UnitFile::parse("[Service]\nUser=web\nNice=5\n")?;
/// let options = unit.options();
/// assert_eq!(options.len(), 2);
/// assert_eq!(options.get(1).map(|option| option.value()), Some("5"));
/// assert!(options.map(|option| option.name()).eq(["User", "Nice"]));
/// # Ok::<(), fleet_unitfile::ParseError>(())
/// ```
#[derive(Clone)]
pub struct Options<'a> {
    text: &'a Text,
    left: Range<usize>,
}

impl<'a> Options<'a> {
    pub(crate) fn new(text: &'a Text) -> Self {
        Self { text, left: 0..text.options.len() }
    }

    /// The options at a range of indexes.
    pub(crate) fn range(text: &'a Text, left: Range<usize>) -> Self {
        Self { text, left }
    }

    /// Returns `true` if no options are left.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Returns the option at an index, counted from the first remaining one.
    pub fn get(&self, index: usize) -> Option<OptionView<'a>> {
        let place = self.left.start.checked_add(index).filter(|place| *place < self.left.end)?;
        self.entry(place).map(|entry| OptionView::new(self.text, &entry))
    }

    /// Returns the options with this section and any of these names.
    pub(crate) fn named<'n, const N: usize>(
        self,
        section: &'n str,
        names: [&'n str; N],
    ) -> impl DoubleEndedIterator<Item = OptionView<'a>> {
        let Self { text, left } = self;
        left.filter_map(move |place| {
            let may_be_named =
                |entry: &Entry<'_>| names.iter().any(|name| text.may_be_named(entry, name));
            let entry = text.options.get(place).filter(may_be_named)?;
            let option = OptionView::new(text, &entry);
            let is_one = names.contains(&option.name()) && option.section() == section;
            is_one.then_some(option)
        })
    }

    #[inline]
    fn entry(&self, place: usize) -> Option<Entry<'a>> {
        self.text.options.get(place)
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = OptionView<'a>;

    #[inline]
    fn next(&mut self) -> Option<OptionView<'a>> {
        self.nth(0)
    }

    #[inline]
    fn nth(&mut self, index: usize) -> Option<OptionView<'a>> {
        let entry = self.left.nth(index).and_then(|place| self.entry(place));
        entry.map(|entry| OptionView::new(self.text, &entry))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl DoubleEndedIterator for Options<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.left.next_back().and_then(|place| self.entry(place));
        entry.map(|entry| OptionView::new(self.text, &entry))
    }
}

impl ExactSizeIterator for Options<'_> {}

impl FusedIterator for Options<'_> {}

impl PartialEq for Options<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.clone().eq(other.clone())
    }
}

impl Eq for Options<'_> {}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}
