//! The model's file: protobuf by the crate `rten-onnx`, and what that leaves out.

use rten_onnx::onnx::ModelProto;
use rten_onnx::protobuf::{
    DecodeMessage, Fields, OwnedValues, ProtobufError, ReadValue, ValueReader,
};
use std::ops::Range;

/// A model with what `rten-onnx` does not read of it.
pub(super) struct Model {
    /// What it reads.
    pub(super) model: ModelProto,
    /// What it leaves out.
    pub(super) rest: Rest,
}

impl Model {
    /// Parses a file.
    ///
    /// # Errors
    /// What is wrong with its bytes.
    pub(super) fn parse(bytes: &[u8]) -> Result<Model, String> {
        let wrong = |e: ProtobufError| format!("not an ONNX model: {e}");
        check(bytes, 0..bytes.len(), Message::Model, DEPTH)
            .map_err(|e| format!("not an ONNX model: {e}"))?;
        let model = ModelProto::parse_buf(bytes).map_err(wrong)?;
        let rest = Rest::decode(ValueReader::from_buf(bytes)).map_err(wrong)?;
        Ok(Model { model, rest })
    }
}

/// How deep messages may stand in each other: protobuf's own readers have this limit.
const DEPTH: usize = 100;

/// Messages, as far as they hold others or packed numbers.
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
    /// Any that holds neither.
    Plain,
}

/// What a field of bytes holds.
enum Content {
    Bytes,
    Message(Message),
    /// Numbers of so many bytes, one behind the other.
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

/// Checks that every field of a message ends where it may, which `rten-onnx` takes for granted: a
/// length that is a lie makes it read on from elsewhere, for ever where it goes back, and it
/// follows messages in each other as deep as they are.
fn check(bytes: &[u8], at: Range<usize>, message: Message, depth: usize) -> Result<(), String> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(format!(
            "at byte {} it has more than {DEPTH} messages in each other",
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

/// Whether the bytes are whole numbers, one behind the other.
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

/// A number at a place, seven bits a byte, and where it ends.
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0;
    for (i, &byte) in bytes.get(at..)?.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        value |= bits << (7 * i);
        if byte < 0x80 {
            // Of the tenth byte there is room for one bit.
            return (i < 9 || bits < 2).then_some((value, at + i + 1));
        }
    }
    None
}

/// What `rten-onnx` does not read of a model.
#[derive(Default)]
pub(super) struct Rest {
    /// Of its graph.
    pub(super) graph: GraphRest,
    /// Functions of the model's own: their number.
    pub(super) functions: usize,
}

/// What it does not read of a graph.
#[derive(Default)]
pub(super) struct GraphRest {
    /// Of each node.
    pub(super) nodes: Vec<NodeRest>,
    /// Of each initialiser.
    pub(super) initializers: Vec<TensorRest>,
    /// Sparse initialisers: their number.
    pub(super) sparse: usize,
}

/// What it does not read of a node: the tensors of its attributes.
#[derive(Default)]
pub(super) struct NodeRest {
    /// Of each attribute.
    pub(super) attributes: Vec<TensorRest>,
}

/// What it does not read of a tensor.
#[derive(Default, Clone)]
pub(super) struct TensorRest {
    /// `string_data`
    pub(super) texts: Vec<String>,
    /// `uint64_data`
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
                    .push(AttributeRest::decode_field(&mut field)?.0),
                _ => field.skip()?,
            }
        }
        Ok(rest)
    }
}

/// Of an attribute.
struct AttributeRest(TensorRest);

impl DecodeMessage for AttributeRest {
    type Types = OwnedValues;

    fn decode_fields<R: ReadValue<Types = OwnedValues>>(
        mut fields: Fields<R>,
    ) -> Result<AttributeRest, ProtobufError> {
        let mut rest = TensorRest::default();
        while let Some(mut field) = fields.next()? {
            match field.number() {
                5 => rest = TensorRest::decode_field(&mut field)?,
                _ => field.skip()?,
            }
        }
        Ok(AttributeRest(rest))
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

    /// What stands in front of a field of so many bytes.
    fn head(number: u8, mut length: usize) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2];
        while length > 0x7f {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes
    }

    /// A field of bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&head(number, content.len())[..], content].concat()
    }

    fn error(bytes: &[u8]) -> String {
        Model::parse(bytes).err().expect("it is damaged")
    }

    #[test]
    fn lengths_that_lie() {
        // An unknown field whose length, as a signed number, goes back to its own beginning.
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
        // 2^40 bytes of a producer's name.
        let name = [0x12, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20];
        assert!(
            error(&name).ends_with("a field of 1099511627776 bytes from byte 7 on, there are 0")
        );
        // A tensor's numbers: floats that end within one, integers whose last one goes on behind
        // them.
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
            // From the innermost out, back to front.
            let mut bytes = Vec::new();
            for number in [6, 5, 1].into_iter().cycle().take(3 * levels).chain([7]) {
                let head = head(number, bytes.len());
                bytes.extend(head.into_iter().rev());
            }
            bytes.reverse();
            bytes
        };
        assert!(Model::parse(&nested(30)).is_ok());
        let limit = "more than 100 messages in each other";
        assert!(error(&nested(40)).ends_with(limit));
        assert!(error(&nested(100_000)).ends_with(limit));
    }
}
