// SPDX-License-Identifier: MIT OR Apache-2.0

//! Setters of public structures whose fields may become more.

/// Chained setters named after their fields, for a structure that is `#[non_exhaustive]`. One
/// marked `into` takes any value that converts into the field's type.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    () => {};
    (into $field:ident: $type:ty, $($rest:tt)*) => {
        #[doc = concat!(
            "Sets [`", stringify!($field), "`](#structfield.", stringify!($field), ")."
        )]
        #[must_use]
        pub fn $field(mut self, $field: impl Into<$type>) -> Self {
            self.$field = $field.into();
            self
        }
        $crate::setters! { $($rest)* }
    };
    ($field:ident: $type:ty, $($rest:tt)*) => {
        #[doc = concat!(
            "Sets [`", stringify!($field), "`](#structfield.", stringify!($field), ")."
        )]
        #[must_use]
        pub fn $field(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
        $crate::setters! { $($rest)* }
    };
}
