package port

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// request is the message of a method's calls.
type request[Message any] interface {
	*Message
	proto.Message
}

// Method is a unary method of a service by its name. What f returns is a
// proto.Message or wire.Encoded. A call that times out is answered as torchft
// answers it: CANCELLED, "Timeout expired".
func Method[Message any, Request request[Message]](name string, f func(context.Context, Request) (any, error)) grpc.MethodDesc {
	return method(name, func(ctx context.Context, r Request) (any, error) {
		ctx, cancel := early(ctx)
		defer cancel()
		answer, err := f(ctx, r)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return nil, status.Error(codes.Canceled, "Timeout expired")
		case errors.Is(err, context.Canceled):
			return nil, status.Error(codes.Canceled, "the caller has gone")
		}
		return answer, err
	})
}

// Prompt is a Method whose calls never wait, so that none can time out and none
// is watched.
func Prompt[Message any, Request request[Message]](name string, f func(Request) (any, error)) grpc.MethodDesc {
	return method(name, func(_ context.Context, r Request) (any, error) { return f(r) })
}

func method[Message any, Request request[Message]](name string, f func(context.Context, Request) (any, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		r := Request(new(Message))
		if err := decode(r); err != nil {
			return nil, err
		}
		return f(ctx, r)
	}}
}

// Service is a service by its name.
func Service(name string, methods ...grpc.MethodDesc) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{ServiceName: name, HandlerType: (*any)(nil), Methods: methods}
}

// early moves a call's deadline forward by a tenth of the remaining time, 10 ms
// at most. At the deadline itself grpc-go resets the stream, and no status
// reaches the caller any more.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	left := time.Until(deadline)
	return context.WithDeadline(ctx, deadline.Add(-min(left/10, 10*time.Millisecond)))
}
