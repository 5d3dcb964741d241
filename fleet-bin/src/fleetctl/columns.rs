//! Pure: selection of list columns with `--fields`.

use super::args::inspect_args::ListArgs;
use crate::ui::colour::Colour;
use crate::ui::error::CliError;
use crate::ui::names::nearest;
use crate::ui::table::painted;

/// Name of a column, and the function that returns the column's cell for a row. Its `bool` argument
/// requests IDs and hashes in full length.
pub(crate) type Column<R> = (&'static str, fn(&R, bool) -> String);

/// Columns of a list.
pub(crate) struct Columns<R: 'static> {
    /// All columns.
    pub(crate) all: &'static [Column<R>],
    /// Names of the default columns.
    pub(crate) default: &'static [&'static str],
}

impl<R> Columns<R> {
    /// Formats rows as a table with the columns of `--fields`, or else with the default columns.
    ///
    /// The column `extra` is added to the default columns if some row has a value for it.
    ///
    /// # Errors
    ///
    /// `--fields` names an unknown column.
    pub(crate) fn table(
        &self,
        args: &ListArgs,
        rows: &[R],
        extra: Option<&'static str>,
        colour: Colour,
    ) -> Result<String, CliError> {
        let columns = match &args.fields {
            Some(fields) => self.selected(fields)?,
            None => self.default_columns(rows, extra),
        };
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let cells = |row| columns.iter().map(|(_, show)| show(row, args.full)).collect();
        let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
        Ok(painted(&names, !args.no_legend, &cells, colour))
    }

    /// Checks `--fields` before any request is sent.
    ///
    /// # Errors
    ///
    /// As for [`table`](Self::table).
    pub(crate) fn check(&self, args: &ListArgs) -> Result<(), CliError> {
        args.fields.as_ref().map_or(Ok(()), |fields| self.selected(fields).map(drop))
    }

    fn selected(&self, fields: &str) -> Result<Vec<&Column<R>>, CliError> {
        fields.split(',').map(|field| self.find(field).ok_or_else(|| self.unknown(field))).collect()
    }

    fn default_columns(&self, rows: &[R], extra: Option<&'static str>) -> Vec<&Column<R>> {
        let has_value = |(_, show): &&Column<R>| {
            rows.iter().any(|row| show(row, false) != crate::ui::table::NOTHING)
        };
        let extra = extra.and_then(|name| self.find(name)).filter(has_value);
        self.default.iter().filter_map(|name| self.find(name)).chain(extra).collect()
    }

    fn find(&self, name: &str) -> Option<&Column<R>> {
        self.all.iter().find(|(known, _)| *known == name)
    }

    fn unknown(&self, field: &str) -> CliError {
        let names: Vec<&str> = self.all.iter().map(|(name, _)| *name).collect();
        let error = CliError::usage(format!("--fields: unknown field {field:?}"));
        let error = match nearest(field, names.iter().copied()) {
            Some(near) => error.help(format!("did you mean {near}?")),
            None => error,
        };
        error.help(format!("the fields are {}", names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: Columns<(&str, &str)> = Columns {
        all: &[
            ("machine", |row, full| if full { row.0.into() } else { row.0[..1].into() }),
            ("reason", |row, _| row.1.into()),
        ],
        default: &["machine"],
    };

    fn table(fields: Option<&str>, full: bool, rows: &[(&'static str, &'static str)]) -> String {
        let args =
            ListArgs { full, no_legend: false, fields: fields.map(str::to_owned), watch: false };
        let mut text = Vec::new();
        match COLUMNS.table(&args, rows, Some("reason"), Colour::Off) {
            Ok(table) => return table,
            Err(error) => error.print(&mut text).unwrap(),
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn extra_column_appears_if_a_row_has_a_value() {
        assert_eq!(table(None, false, &[("abc", "-")]), "MACHINE\na\n");
        assert_eq!(table(None, true, &[("abc", "full")]), "MACHINE\tREASON\nabc\tfull\n");
        assert_eq!(
            table(Some("reason,machine"), false, &[("abc", "-")]),
            "REASON\tMACHINE\n-\ta\n"
        );
    }

    #[test]
    fn unknown_field_is_refused() {
        insta::assert_snapshot!(table(Some("machin"), false, &[]), @r#"
        fleetctl: --fields: unknown field "machin"
        help: did you mean machine?
        help: the fields are machine, reason
        "#);
        insta::assert_snapshot!(table(Some(""), false, &[]), @r#"
        fleetctl: --fields: unknown field ""
        help: the fields are machine, reason
        "#);
    }
}
