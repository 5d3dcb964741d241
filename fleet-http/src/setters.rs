//! Methods that set one field each, for options that other crates create.

/// Defines setters of fields. An optional field is set by its content, or by an `Option`. A text
/// field, optional or not, is set by anything that converts into a `String`.
macro_rules! setters {
    (
        $(optional: $($optional:ident = $option:ident: $content:ty),+;)?
        $(text: $($text:ident = $string:ident),+;)?
        $(plain: $($plain:ident = $field:ident: $type:ty),+;)?
    ) => {
        $($(
            #[doc = concat!("Sets [`", stringify!($option), "`](Self::", stringify!($option), ").")]
            #[must_use]
            pub fn $optional(self, $option: impl Into<Option<$content>>) -> Self {
                Self { $option: $option.into(), ..self }
            }
        )+)?
        $($(
            #[doc = concat!("Sets [`", stringify!($string), "`](Self::", stringify!($string), ").")]
            #[must_use]
            pub fn $text(self, $string: impl Into<String>) -> Self {
                let text: String = $string.into();
                Self { $string: text.into(), ..self }
            }
        )+)?
        $($(
            #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
            #[must_use]
            pub fn $plain(self, $field: $type) -> Self {
                Self { $field, ..self }
            }
        )+)?
    };
}

pub(crate) use setters;
