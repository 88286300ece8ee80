//! Parses the protobuf file of an ONNX model. The crate `rten-onnx` reads most fields, and this
//! module reads those that the crate leaves out.

use rten_onnx::onnx::ModelProto;
use rten_onnx::protobuf::{
    DecodeMessage, Fields, OwnedValues, ProtobufError, ReadValue, ValueReader,
};
use std::ops::Range;

/// The parsed file of a model.
pub(super) struct OnnxModel {
    /// The fields that `rten-onnx` reads.
    pub(super) model: ModelProto,
    /// The fields that `rten-onnx` leaves out.
    pub(super) rest: Rest,
}

impl OnnxModel {
    /// Parses a file.
    pub(super) fn parse(bytes: &[u8]) -> Result<OnnxModel, String> {
        let wrong = |e: ProtobufError| format!("not an ONNX model: {e}");
        check(bytes, 0..bytes.len(), Message::Model, DEPTH)
            .map_err(|e| format!("not an ONNX model: {e}"))?;
        let model = ModelProto::parse_buf(bytes).map_err(wrong)?;
        let rest = Rest::decode(ValueReader::from_buf(bytes)).map_err(wrong)?;
        Ok(OnnxModel { model, rest })
    }
}

/// The most nested messages that a file may have. Protobuf's own readers have the same limit.
const DEPTH: usize = 100;

/// The kinds of protobuf messages that contain other messages or packed numbers.
#[derive(Clone, Copy)]
enum Message {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    ValueInfo,
    Type,
    TensorType,
    SequenceType,
    Shape,
    /// A message that contains neither messages nor packed numbers.
    Plain,
}

/// The content of a protobuf field with a stated length in bytes.
enum Content {
    Bytes,
    Message(Message),
    /// Packed numbers of a fixed size, which is given in bytes.
    Fixed(usize),
    Varints,
}

impl Message {
    fn content(self, field: u64) -> Content {
        let message = match (self, field) {
            (Message::Model, 7) | (Message::Attribute, 6) => Message::Graph,
            (Message::Model, 8 | 14) | (Message::Tensor, 13) | (Message::Shape, 1) => {
                Message::Plain
            }
            (Message::Graph, 1) => Message::Node,
            (Message::Graph, 5) | (Message::Attribute, 5) => Message::Tensor,
            (Message::Graph, 11..=13) => Message::ValueInfo,
            (Message::Node, 5) => Message::Attribute,
            (Message::ValueInfo, 2) | (Message::SequenceType, 1) => Message::Type,
            (Message::Type, 1) => Message::TensorType,
            (Message::Type, 4) => Message::SequenceType,
            (Message::TensorType, 2) => Message::Shape,
            (Message::Tensor, 4) => return Content::Fixed(4),
            (Message::Tensor, 10) => return Content::Fixed(8),
            (Message::Tensor, 1 | 5 | 7 | 11) => return Content::Varints,
            _ => return Content::Bytes,
        };
        Content::Message(message)
    }
}

/// Checks the length of every field, and the depth of nested messages. `rten-onnx` checks neither.
/// A wrong length makes it read elsewhere, or without end. Deep messages overflow its stack.
fn check(bytes: &[u8], at: Range<usize>, message: Message, depth: usize) -> Result<(), String> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(format!(
            "more than {DEPTH} nested messages at byte {}",
            at.start
        ));
    };
    let (mut next, end) = (at.start, at.end);
    while next < end {
        let start = next;
        let damaged = || format!("cut off or damaged at byte {start} of {}", bytes.len());
        let (tag, behind) = varint(&bytes[..end], next).ok_or_else(damaged)?;
        let (length, from) = match tag & 7 {
            0 => (0, varint(&bytes[..end], behind).ok_or_else(damaged)?.1),
            1 => (8, behind),
            2 => varint(&bytes[..end], behind).ok_or_else(damaged)?,
            5 => (4, behind),
            _ => return Err(damaged()),
        };
        let to = usize::try_from(length)
            .ok()
            .and_then(|n| from.checked_add(n))
            .filter(|&to| to <= end);
        next = to.ok_or_else(|| {
            format!(
                "cut off or damaged: a field of {length} bytes from byte {from} on, there are {}",
                end - from
            )
        })?;
        match message.content(tag >> 3) {
            _ if tag & 7 != 2 => {}
            Content::Bytes => {}
            Content::Message(inner) => check(bytes, from..next, inner, depth)?,
            Content::Fixed(size) if (next - from) % size == 0 => {}
            Content::Varints if varints(&bytes[from..next]) => {}
            Content::Fixed(_) | Content::Varints => return Err(damaged()),
        }
    }
    Ok(())
}

/// Returns true if the bytes consist of complete variable-length numbers.
fn varints(bytes: &[u8]) -> bool {
    let mut at = 0;
    while at < bytes.len() {
        let Some((_, end)) = varint(bytes, at) else {
            return false;
        };
        at = end;
    }
    true
}

/// Decodes the variable-length number at the index `at`. Returns the number and the index behind
/// it. `None` if it is incomplete or too long.
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0;
    for (i, &byte) in bytes.get(at..)?.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        value |= bits << (7 * i);
        if byte < 0x80 {
            // The tenth byte of a 64-bit number holds a single bit.
            return (i < 9 || bits < 2).then_some((value, at + i + 1));
        }
    }
    None
}

/// The fields of a model that `rten-onnx` leaves out.
#[derive(Default)]
pub(super) struct Rest {
    pub(super) graph: GraphRest,
    /// The number of functions that the model defines itself.
    pub(super) functions: usize,
}

/// The fields of a graph that `rten-onnx` leaves out.
#[derive(Default)]
pub(super) struct GraphRest {
    pub(super) nodes: Vec<NodeRest>,
    pub(super) initializers: Vec<TensorRest>,
    /// The number of sparse initializers in the graph.
    pub(super) sparse: usize,
}

/// The fields of a node that `rten-onnx` leaves out.
#[derive(Default)]
pub(super) struct NodeRest {
    pub(super) attributes: Vec<AttributeRest>,
}

/// The fields of an attribute that `rten-onnx` leaves out.
#[derive(Default)]
pub(super) struct AttributeRest {
    pub(super) tensor: TensorRest,
    pub(super) graph: GraphRest,
}

/// The fields of a tensor that `rten-onnx` leaves out.
#[derive(Default, Clone)]
pub(super) struct TensorRest {
    /// The tensor's texts, from the field `string_data`.
    pub(super) texts: Vec<String>,
    /// The tensor's unsigned integers, from the field `uint64_data`.
    pub(super) unsigned: Vec<u64>,
}

impl DecodeMessage for Rest {
    type Types = OwnedValues;

    fn decode_fields<R: ReadValue<Types = OwnedValues>>(
        mut fields: Fields<R>,
    ) -> Result<Rest, ProtobufError> {
        let mut rest = Rest::default();
        while let Some(mut field) = fields.next()? {
            match field.number() {
                7 => rest.graph = GraphRest::decode_field(&mut field)?,
                25 => {
                    rest.functions += 1;
                    field.skip()?;
                }
                _ => field.skip()?,
            }
        }
        Ok(rest)
    }
}

impl DecodeMessage for GraphRest {
    type Types = OwnedValues;

    fn decode_fields<R: ReadValue<Types = OwnedValues>>(
        mut fields: Fields<R>,
    ) -> Result<GraphRest, ProtobufError> {
        let mut rest = GraphRest::default();
        while let Some(mut field) = fields.next()? {
            match field.number() {
                1 => rest.nodes.push(NodeRest::decode_field(&mut field)?),
                5 => rest
                    .initializers
                    .push(TensorRest::decode_field(&mut field)?),
                15 => {
                    rest.sparse += 1;
                    field.skip()?;
                }
                _ => field.skip()?,
            }
        }
        Ok(rest)
    }
}

impl DecodeMessage for NodeRest {
    type Types = OwnedValues;

    fn decode_fields<R: ReadValue<Types = OwnedValues>>(
        mut fields: Fields<R>,
    ) -> Result<NodeRest, ProtobufError> {
        let mut rest = NodeRest::default();
        while let Some(mut field) = fields.next()? {
            match field.number() {
                5 => rest
                    .attributes
                    .push(AttributeRest::decode_field(&mut field)?),
                _ => field.skip()?,
            }
        }
        Ok(rest)
    }
}

impl DecodeMessage for AttributeRest {
    type Types = OwnedValues;

    fn decode_fields<R: ReadValue<Types = OwnedValues>>(
        mut fields: Fields<R>,
    ) -> Result<AttributeRest, ProtobufError> {
        let mut rest = AttributeRest::default();
        while let Some(mut field) = fields.next()? {
            match field.number() {
                5 => rest.tensor = TensorRest::decode_field(&mut field)?,
                6 => rest.graph = GraphRest::decode_field(&mut field)?,
                _ => field.skip()?,
            }
        }
        Ok(rest)
    }
}

impl DecodeMessage for TensorRest {
    type Types = OwnedValues;

    fn decode_fields<R: ReadValue<Types = OwnedValues>>(
        mut fields: Fields<R>,
    ) -> Result<TensorRest, ProtobufError> {
        let mut rest = TensorRest::default();
        while let Some(mut field) = fields.next()? {
            match field.number() {
                6 => rest.texts.push(field.read_string()?),
                11 => {
                    for number in field.read_repeated_uint64()? {
                        rest.unsigned.push(number?);
                    }
                }
                _ => field.skip()?,
            }
        }
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes the tag and the stated length of a field whose content has `length` bytes.
    fn head(number: u8, mut length: usize) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2];
        while length > 0x7f {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes
    }

    /// Encodes a protobuf field: its tag, its length and its content.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&head(number, content.len())[..], content].concat()
    }

    fn error(bytes: &[u8]) -> String {
        OnnxModel::parse(bytes).err().expect("it is damaged")
    }

    #[test]
    fn lengths_that_lie() {
        // An unknown field. Its length, read as a signed number, leads back to the field's own
        // beginning.
        let back: Vec<u8> = [
            &[0xa2, 6][..],
            &[0xf4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        ]
        .concat();
        let lie = "not an ONNX model: cut off or damaged: a field of 18446744073709551604 bytes \
                   from byte 12 on, there are 0";
        assert_eq!(error(&back), lie);
        assert_eq!(
            error(&field(7, &back)),
            lie.replace("byte 12", "byte 14"),
            "in the graph, where it would go back to before it"
        );
        // The field `producer_name`, whose stated length is 2^40 bytes.
        let name = [0x12, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20];
        assert!(
            error(&name).ends_with("a field of 1099511627776 bytes from byte 7 on, there are 0")
        );
        // Damaged numbers of a tensor: the field of floats ends inside a float, or the last integer
        // continues behind the end of the field.
        let endless = [[0x80; 10].as_slice(), &[1]].concat();
        for numbers in [
            field(4, &[0; 7]),
            field(10, &[0; 12]),
            field(7, &[1, 0x80]),
            field(1, &[0x80]),
            field(7, &endless),
            field(11, &endless),
        ] {
            assert!(error(&field(7, &field(5, &numbers))).contains("damaged at byte 4 of"));
        }
        let good = field(
            7,
            &field(5, &[field(7, &[1, 0x80, 1]), field(4, &[0; 8])].concat()),
        );
        assert_eq!(check(&good, 0..good.len(), Message::Model, DEPTH), Ok(()));
        assert!(
            error(&[0x0b, 0x0c]).contains("damaged at byte 0 of 2"),
            "groups are of older protobufs"
        );
    }

    #[test]
    fn graphs_in_graphs() {
        let nested = |levels: usize| {
            // Encodes in reverse, from the innermost graph outwards, because lengths come first.
            let mut bytes = Vec::new();
            for number in [6, 5, 1].into_iter().cycle().take(3 * levels).chain([7]) {
                let head = head(number, bytes.len());
                bytes.extend(head.into_iter().rev());
            }
            bytes.reverse();
            bytes
        };
        assert!(OnnxModel::parse(&nested(30)).is_ok());
        let limit = "more than 100 nested messages at byte ";
        assert!(error(&nested(40)).contains(limit));
        assert!(error(&nested(100_000)).contains(limit));
    }
}
