//! Values by key, as a list of a sweep (TOML) or a job (JSON) has them.

use serde_json::{Map, Value};

use crate::Error;

/// Values that are taken out by key.
#[derive(Clone)]
pub(crate) struct Keys {
    values: Map<String, Value>,
    /// How keys are written: `block-size`, or `block_size`.
    separator: char,
}

/// An entry of a list.
pub(crate) enum Entry {
    Text(String),
    Table(Keys),
}

impl Keys {
    /// The values of `text`, which is JSON.
    pub(crate) fn json(text: &str) -> Result<Keys, Error> {
        match serde_json::from_str(text) {
            Ok(Value::Object(values)) => Ok(Keys { values, separator: '_' }),
            Ok(_) => Err(Error::Syntax("expected an object of JSON".to_owned())),
            Err(error) => Err(Error::Syntax(error.to_string())),
        }
    }

    /// The values of `text`, which is TOML.
    pub(crate) fn toml(text: &str) -> Result<Keys, Error> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
            Error::Syntax(format!("line {line}: {}", error.message()))
        })?;
        // JSON would have nothing in its place.
        let mut floats = table.iter().filter_map(|(key, value)| Some((key, value.as_float()?)));
        if let Some((key, float)) = floats.find(|(_, float)| !float.is_finite()) {
            let (given, problem) = (float.to_string(), "expected a finite number".to_owned());
            return Err(Error::Value { key: key.clone(), given, problem });
        }
        match serde_json::to_value(table) {
            Ok(Value::Object(values)) => Ok(Keys { values, separator: '-' }),
            _ => Err(Error::Syntax("expected keys and values".to_owned())),
        }
    }

    /// Refuses keys that are not among `known`, written with `_`.
    pub(crate) fn check(&self, known: &[&str]) -> Result<(), Error> {
        let known: Vec<String> = known.iter().map(|key| self.written(key)).collect();
        match self.values.keys().find(|key| !known.contains(key)) {
            Some(key) => Err(Error::UnknownKey {
                key: key.clone(),
                nearest: nigh_text::nearest(key, known.iter().map(String::as_str)).map(str::to_owned),
                known: known.join(", "),
            }),
            None => Ok(()),
        }
    }

    fn written(&self, key: &str) -> String {
        key.replace('_', self.separator.encode_utf8(&mut [0; 4]))
    }

    pub(crate) fn missing(&self, key: &str) -> Error {
        Error::Missing(self.written(key))
    }

    /// An error in the value of `key`.
    pub(crate) fn wrong(&self, key: &str, given: impl ToString, problem: impl ToString) -> Error {
        Error::Value { key: self.written(key), given: given.to_string(), problem: problem.to_string() }
    }

    /// The value of `key`; nothing where there is none, or JSON's null.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.values.remove(&self.written(key)).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&mut self, key: &str) -> Result<Option<String>, Error> {
        match self.take(key) {
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, other, "expected text")),
            None => Ok(None),
        }
    }

    /// Texts, of which there must be one at least.
    pub(crate) fn texts(&mut self, key: &str) -> Result<Vec<String>, Error> {
        const EXPECTED: &str = "expected a list of texts";
        let values = match self.take(key) {
            Some(Value::Array(values)) => values,
            Some(text @ Value::String(_)) => vec![text],
            Some(other) => return Err(self.wrong(key, other, EXPECTED)),
            None => return Err(self.missing(key)),
        };
        if values.is_empty() {
            return Err(self.wrong(key, "[]", EXPECTED));
        }
        let text = |value| match value {
            Value::String(text) => Ok(text),
            other => Err(self.wrong(key, other, EXPECTED)),
        };
        values.into_iter().map(text).collect()
    }

    /// Texts, or tables of keys, of which there must be one at least.
    pub(crate) fn entries(&mut self, key: &str) -> Result<Vec<Entry>, Error> {
        const EXPECTED: &str = "expected a list of texts and tables";
        let values = match self.take(key) {
            Some(Value::Array(values)) if !values.is_empty() => values,
            Some(text @ Value::String(_)) => vec![text],
            Some(other) => return Err(self.wrong(key, other, EXPECTED)),
            None => return Err(self.missing(key)),
        };
        let entry = |value| match value {
            Value::String(text) => Ok(Entry::Text(text)),
            Value::Object(values) => Ok(Entry::Table(Keys { values, separator: self.separator })),
            other => Err(self.wrong(key, other, EXPECTED)),
        };
        values.into_iter().map(entry).collect()
    }

    /// These values, and those of `own` in place of the ones with the same keys.
    pub(crate) fn with(&self, own: Keys) -> Keys {
        let mut all = self.clone();
        all.values.extend(own.values);
        all
    }

    pub(crate) fn flag(&mut self, key: &str) -> Result<bool, Error> {
        match self.take(key) {
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(self.wrong(key, other, "expected true or false")),
            None => Ok(false),
        }
    }

    /// A number, or text that `parse` understands.
    pub(crate) fn quantity<T>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Option<T>,
        expected: &str,
    ) -> Result<Option<T>, Error> {
        let text = match self.take(key) {
            Some(Value::String(text)) => text,
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => return Err(self.wrong(key, other, expected)),
            None => return Ok(None),
        };
        parse(&text).map(Some).ok_or_else(|| self.wrong(key, text, expected))
    }
}
